"""Real processes of one federation, and looks at them from outside."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import secure_fgl
from protocols.evidence.ledger import read_lines
from secure_fgl.config import Config
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.job import write_job
from tests.sites.stage import SERVER_SITE, Parties, assemble, side

ROOT = Path(secure_fgl.__file__).parents[1]
SESSION = "secure_fgl.sites.session"


@dataclass
class Stage:
    """Provisioned kits, parties and taps for one run."""

    base: Path
    parties: Parties
    made: kits.Kits

    @property
    def ledger(self) -> Path:
        return side(self.parties.folders[SERVER_SITE]) / "ledger" / "aggregator.jsonl"

    def opened(self) -> int:
        """Return how many sums the aggregator has opened so far."""
        return self.ledger.read_bytes().count(b'"kind":"open"') if self.ledger.exists() else 0

    def finished(self) -> bool:
        return (side(self.parties.folders[SERVER_SITE]) / "result.json").exists()

    def job(self, name: str) -> Path:
        charter = self.parties.charter
        return write_job(self.base / name, [*self.made.sites], deadline=240.0, charter=charter)

    def entries(self, site: str) -> list[dict[str, Any]]:
        """Return a party's ledger as it stands."""
        folder = self.parties.folders[site]
        data = (side(folder) / "ledger" / f"{folder.name}.jsonl").read_bytes()
        return [entry for entry, _ in read_lines(data[: data.rfind(b"\n") + 1])]


@contextlib.contextmanager
def staged(
    config: Config, base: Path, data_root: Path | None, parties: Parties | None = None
) -> Iterator[tuple[Stage, kits.Processes]]:
    """Yield a federation of real processes, every job of which is tapped."""
    parties = parties or assemble(config, base / "parties")
    sites = [site for site in parties.folders if site != SERVER_SITE]
    made = kits.provision(base / "kits", sites, port=kits.free_port())
    (base / "tap").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(Path(__file__).parent / "tap"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
        patch.setenv("SECURE_FGL_TEST_TAP", str(base / "tap"))
        with kits.federation(made, parties.folders, data_root=data_root) as processes:
            yield Stage(base, parties, made), processes
            started = [*processes.running.values(), *processes.at_parties.values()]
            groups = [process.pid for process in started]
    assert not any(alive(group) for group in groups), "a process outlived its federation"


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def until(holds: Callable[[], bool], *, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def children(parent: int, marked: str) -> list[int]:
    """Return the processes that a process started and whose command line holds a word."""
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            stat = (place / "stat").read_text().rsplit(")", 1)[1].split()
            command = (place / "cmdline").read_bytes()
            if int(stat[1]) == parent and stat[0] != "Z" and marked.encode() in command:
                found.append(int(place.name))
    return found


def child(parent: int, marked: str) -> int:
    """Return the one such process, as soon as it is there: sessions and jobs start on their own."""
    until(lambda: len(children(parent, marked)) > 0)
    (found,) = children(parent, marked)
    return found


def job_process(processes: kits.Processes, site: str = SERVER_SITE) -> int:
    """Return the engine's process that relays for a party."""
    marked = ".runner_process" if site == SERVER_SITE else ".worker_process"
    return child(processes.running[site].pid, marked)


def session_process(processes: kits.Processes, site: str) -> int:
    """Return the process that holds a party's session."""
    return child(processes.at_parties[site].pid, SESSION)
