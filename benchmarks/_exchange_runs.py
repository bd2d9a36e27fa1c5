"""Whole runs of FedAvg on Cora over real processes, beside the same run in memory."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._wire import Wire
from protocols.evidence.ledger import read_lines

ROOT = Path(__file__).resolve().parent.parent
LEDGER = "ledger/aggregator.jsonl"
_TIMED = """
import sys, time
from secure_fgl.cli import main
from secure_fgl.run.workers import Workers
from secure_fgl.transports.memory import MemoryTransport
place = sys.argv.pop(1)
def timed(plain):
    def exchange(self, deliveries):
        start = time.monotonic()
        found = plain(self, deliveries)
        with open(place, "a", encoding="utf-8") as file:
            file.write(f"{time.monotonic() - start:.4f}\\n")
        return found
    return exchange
for kind in (MemoryTransport, Workers):
    kind.exchange = timed(kind.exchange)
main()
"""
"""A run in memory that notes how long its exchanges took, as the aggregator's process does."""


def there(entries: Iterable[tuple[Mapping[str, Any], Any]]) -> int:
    """Return after how many exchanges every party had been heard of, by the aggregator's ledger."""
    count, asks, asked, heard, ends = 0, False, set[str](), set[str](), dict[str, int]()
    for entry, _ in entries:
        if entry["kind"] == "release":
            count += not asks
            asks = True
            asked.add(entry["recipient"])
        elif entry["kind"] == "receipt":
            asks = False
            if entry["sender"] not in heard:
                heard.add(entry["sender"])
                ends[entry["sender"]] = count
    if asked != heard or not heard:
        raise ArithmeticError("A party was asked and never heard of.")
    return max(ends.values())


def measured_runs(data: str, rounds: int, repeats: int, policies: Sequence[str]) -> dict[str, Any]:
    """Return seconds of runs on both transports, which take turns, and bytes on the wire.

    Either run counts from the end of the exchange in which the last party was heard of first: until
    then sites start their processes, and clients load their data. Exchanges are those of the
    aggregator's own process.

    Args:
        data: folder of data sets.
        rounds: of each run.
        repeats: runs a policy and transport.
        policies: by name.
    """
    found: dict[str, Any] = {"rounds": rounds, "repeats": repeats}
    for policy in policies:
        extra, ratio, walls, same = [], [], dict[str, list[float]](memory=[], broker=[]), set()
        begins: list[float] = []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                memory, theirs, _ = _run(Path(folder) / "memory", policy, "memory", data, rounds)
                told, seconds, wire = _run(Path(folder) / "broker", policy, "broker", data, rounds)
                begun = there(read_lines((Path(folder) / "memory" / LEDGER).read_bytes()))
            if len(theirs) != len(seconds):
                raise ArithmeticError("The two transports had other exchanges.")
            first = sum(seconds[:begun])
            wall, here = told["wall_s"] - first, memory["wall_s"] - sum(theirs[:begun])
            walls["memory"].append(here)
            walls["broker"].append(wall)
            begins.append(first)
            extra.append((wall - here) / (len(seconds) - begun))
            ratio.append(wire / (told["bytes_up"] + told["bytes_down"]))
            same.add(told["model_sha256"] == memory["model_sha256"])
        found |= {
            f"{policy}_memory_s": statistics.median(walls["memory"]),
            f"{policy}_broker_s": statistics.median(walls["broker"]),
            f"{policy}_until_all_are_there_s": statistics.median(begins),
            f"{policy}_exchanges": len(seconds) - begun,
            f"{policy}_more_an_exchange_s": statistics.median(extra),
            f"{policy}_wire_over_ledgers": statistics.median(ratio),
            f"{policy}_same_model": same == {True},
        }
    return found


def _run(
    out: Path, policy: str, transport: str, data: str, rounds: int
) -> tuple[dict[str, Any], list[float], int]:
    settings = {
        "policy": policy, "data.root": data, "algorithm.rounds": rounds,
        "transport.name": transport,
    }  # fmt: skip
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    config = str(ROOT / "examples" / "cora.yaml")
    timed = ["-c", _TIMED, f"{out}.exchanges"]
    program = timed if transport == "memory" else ["-m", "secure_fgl"]
    command = [sys.executable, *program, "run", config, *words, "--out", str(out)]
    with Path(f"{out}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - our own module
        wire: Wire | None = None
        while process.poll() is None:
            wire = wire or _server(out)
            if wire is not None:
                wire.look()
            time.sleep(0.1)
    if process.returncode != 0:
        raise RuntimeError(Path(f"{out}.log").read_text("utf-8"))
    told: dict[str, Any] = json.loads((out / "result.json").read_text("utf-8"))
    # What a party sends crosses the server's port twice, in and out.
    return told, _exchanges(out), sum(wire.look()) // 2 if wire is not None else 0


def _server(out: Path) -> Wire | None:
    """Return the server's wire once its configuration is there."""
    try:
        text = Path(f"{out}.parties/broker/nats.conf").read_text("utf-8")
        return Wire(int(re.findall(r'listen: "localhost:([0-9]+)"', text)[0]))
    except (OSError, LookupError):
        return None


def _exchanges(out: Path) -> list[float]:
    files = [*Path(f"{out}.parties").glob("parties/aggregator/runs/*/run/exchanges.txt")]
    files += [file for file in [Path(f"{out}.exchanges")] if file.is_file()]
    return [float(line) for file in files for line in file.read_text("utf-8").split()]
