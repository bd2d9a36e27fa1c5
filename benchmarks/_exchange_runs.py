"""Whole runs of FedAvg on Cora over real processes, beside the same run in memory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._wire import Wire

ROOT = Path(__file__).resolve().parent.parent


def measured_runs(data: str, rounds: int, repeats: int, policies: Sequence[str]) -> dict[str, Any]:
    """Return seconds of runs on both transports, which take turns, and bytes on the wire.

    A run over NVFlare counts from the end of its first exchange: in that, the engine starts the
    job's processes. Exchanges are those of the aggregator's own process.

    Args:
        data: folder of data sets.
        rounds: of each run.
        repeats: runs a policy and transport.
        policies: by name.
    """
    found: dict[str, Any] = {"rounds": rounds, "repeats": repeats}
    for policy in policies:
        extra, ratio, walls, same = [], [], dict[str, list[float]](memory=[], nvflare=[]), set()
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                memory, *_ = _run(Path(folder) / "memory", policy, "memory", data, rounds)
                told, seconds, wire = _run(Path(folder) / "nvf", policy, "nvflare", data, rounds)
            wall = told["wall_s"] - seconds[0]
            walls["memory"].append(memory["wall_s"])
            walls["nvflare"].append(wall)
            extra.append((wall - memory["wall_s"]) / (len(seconds) - 1))
            ratio.append(wire / (told["bytes_up"] + told["bytes_down"]))
            same.add(told["model_sha256"] == memory["model_sha256"])
        found |= {
            f"{policy}_memory_s": statistics.median(walls["memory"]),
            f"{policy}_nvflare_s": statistics.median(walls["nvflare"]),
            f"{policy}_exchanges": len(seconds),
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
    command = [sys.executable, "-m", "secure_fgl", "run", config, *words, "--out", str(out)]
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
    return told, _exchanges(out), sum(wire.look()) if wire is not None else 0


def _server(out: Path) -> Wire | None:
    """Return the server's wire once its kit is there."""
    try:
        (file,) = Path(f"{out}.parties").glob("kits/**/localhost/startup/fed_server.json")
        told = json.loads(file.read_text("utf-8"))
        return Wire(int(told["servers"][0]["service"]["target"].rpartition(":")[2]))
    except (OSError, ValueError, LookupError):
        return None


def _exchanges(out: Path) -> list[float]:
    files = Path(f"{out}.parties").glob("parties/aggregator/runs/*/run/exchanges.txt")
    return [float(line) for file in files for line in file.read_text("utf-8").split()]
