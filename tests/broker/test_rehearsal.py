"""`secure-fgl run --set transport.name=broker`: processes as they are started in use."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.store.files import is_run_name
from tests.broker.stage import Memory, banks, until

LEARNT = ("lost_rounds", "metrics", "model_sha256", "rounds", "bytes_down", "bytes_up", "clients")


def config_in(folder: Path, rounds: int) -> Path:
    """Write the configuration of a small run in clear, with four parties."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document(rounds)))
    return path


def document(rounds: int = 2) -> dict[str, Any]:
    return banks(rounds=rounds, clients=3).model_dump(mode="json", exclude_defaults=True)


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "secure_fgl.cli", *map(str, words)]


def rehearsal(folder: Path, rounds: int = 2) -> list[str]:
    path = config_in(folder, rounds)
    return command("run", path, "--set", "transport.name=broker", "--out", folder / "out")


def printed(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a command printed, on one line."""
    return re.sub(r"\s+", " ", done.stdout + done.stderr)


@dataclass
class Rehearsed:
    folder: Path
    config: Config
    printed: str

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def parties(self) -> Path:
        return self.folder / "out.parties"


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    folder = tmp_path_factory.mktemp("rehearsed")
    done = subprocess.run(
        rehearsal(folder), capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, printed(done)
    return Rehearsed(folder, banks(clients=3), printed(done))


def test_a_rehearsal_is_memorys_run(rehearsed: Rehearsed, memory: Memory) -> None:
    result = json.loads((rehearsed.out / "result.json").read_text())
    expected = memory.run(rehearsed.config).result
    assert {k: result[k] for k in LEARNT} == {k: expected[k] for k in LEARNT}


def test_its_evidence_verifies_and_says_that_one_person_held_all(rehearsed: Rehearsed) -> None:
    done = subprocess.run(
        command("audit", "verify", rehearsed.out),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, printed(done)
    assert "NOT SEPARATED" in rehearsed.printed
    report = (rehearsed.out / "report" / "report.md").read_text()
    assert "Rehearsal of client-1" in report


def test_each_party_has_its_own_folder_beside_the_run(rehearsed: Rehearsed) -> None:
    names = {"aggregator", "client-1", "client-2", "client-3"}
    assert {path.name for path in (rehearsed.parties / "parties").iterdir()} == names
    for name in names:
        folder = rehearsed.parties / "parties" / name
        (run,) = [path for path in (folder / "runs").iterdir() if is_run_name(path.name)]
        assert not list(folder.glob("socket.*")), "a process that ended in order leaves no socket"
        assert {path.name for path in (folder / "carrier").iterdir()} == {
            "carrier.key", f"{run.name}.json",
        }  # fmt: skip
        ledgers = {path.name for path in (run / "run" / "ledger").iterdir()}
        assert ledgers == {f"{name}.jsonl"}
    assert (rehearsed.parties / "broker" / "nats.conf").exists()


def _hears_ctrl_c() -> None:
    """Let it hear SIGINT, also where a shell started these tests in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A rehearsal in the midst of many rounds."""
    with (tmp_path / "printed").open("w") as log:
        process = subprocess.Popen(
            rehearsal(tmp_path, 400), stdout=log, stderr=log, text=True,
            start_new_session=True, preexec_fn=_hears_ctrl_c,  # noqa: PLW1509 - one thread
        )  # fmt: skip
    try:
        scored = "out.parties/parties/aggregator/runs/*/run/metrics*"
        until(lambda: any(tmp_path.glob(scored)) or process.poll() is not None, seconds=120)
        assert process.poll() is None, (tmp_path / "printed").read_text()
        yield process, tmp_path
    finally:
        process.kill()
        process.wait()


def of(folder: Path, rehearsing: int) -> list[int]:
    """Return the processes that a rehearsal started: its forks are called as it is."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            try:
                words = (place / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(folder) + b"/out" in words and int(place.name) != rehearsing:
                found.append(int(place.name))
    return found


def called(pid: int) -> str:
    """Return what lists of processes call one; nothing for one that is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def commands(pids: list[int]) -> str:
    words = []
    for pid in pids:
        with contextlib.suppress(OSError):
            words.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
    return " ".join(words)


def test_ctrl_c_leaves_no_process_and_says_where_all_is(
    begun: tuple[subprocess.Popen[str], Path],
) -> None:
    process, folder = begun

    # Of each of four parties its start, its session and its carrier, and the server.
    until(lambda: len(of(folder, process.pid)) >= 13 or process.poll() is not None, seconds=60)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    until(lambda: of(folder, process.pid) == [], seconds=20)
    printed = re.sub(r"\s+", " ", (folder / "printed").read_text())
    assert "Every process was ended" in printed
    assert not (folder / "out" / "result.json").exists()


def test_a_party_that_stops_is_named(begun: tuple[subprocess.Popen[str], Path]) -> None:
    process, folder = begun
    log = folder / "out.parties/parties/client-2/start.log"
    (starts,) = [
        pid
        for pid in of(folder, process.pid)
        if called(pid) == "fgl-start" and Path(f"/proc/{pid}/fd/1").resolve() == log
    ]
    os.kill(starts, signal.SIGKILL)
    assert process.wait(60) not in (0, 130)
    until(lambda: of(folder, process.pid) == [], seconds=20)
    printed = re.sub(r"\s+", " ", (folder / "printed").read_text())
    assert "client-2 stopped" in printed


@pytest.mark.parametrize(
    "url", ["tls://fl.example.org:4222", "tls://localhost", "nats://localhost:4222", "localhost:1"]
)
def test_a_rehearsal_takes_no_server_elsewhere(url: str, tmp_path: Path) -> None:
    config = Config.parse({**document(), "transport": {"name": "broker", "url": url}})
    with pytest.raises(UsageError):
        Federation.from_config(config).run(tmp_path / "out")
    assert not list(tmp_path.glob("out/result.json"))


def test_what_only_a_simulation_has_is_refused(tmp_path: Path) -> None:
    faulty = {**document(), "transport": {"name": "broker"}, "faults": {"drop": "client-1@1"}}
    with pytest.raises(UsageError):
        Federation.from_config(Config.parse(faulty)).run(tmp_path / "out")
    config = Config.parse({**document(), "transport": {"name": "broker"}})
    with pytest.raises(UsageError, match="rehearsal cannot be resumed"):
        Federation.from_config(config).run(tmp_path / "out", resume=True)
