"""The soak's federation: server and every party's processes, which one is of which kind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import secure_fgl
from benchmarks._exchange_starts import agreed
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.charter import Charter
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.sites.lock import at_work
from secure_fgl.sites.rehearsal import Processes
from secure_fgl.sites.status import State, Status, read_status
from secure_fgl.store.sides.party_side import place_of
from secure_fgl.transports.broker.config import write_config
from secure_fgl.transports.broker.server import free_port, start_server

TAP = Path(__file__).resolve().parent / "soak_tap"
SERVER = "server"
_HOUSE = Path(secure_fgl.__file__).resolve().parents[1]


def settings(rounds: int) -> Config:
    """Return FedAvg of five clients on small tables, sums under homomorphic encryption."""
    return Config.parse(
        {
            "algorithm": {"name": "fed_avg", "rounds": rounds},
            "model": {"hidden": 8},
            "data": {
                "name": "synthetic_banks",
                "options": {"customers": 40, "transactions": 60},
                "partition": {"name": "by_owner", "clients": 5},
            },
            "policy": "he",
            "seed": 1,
        }
    )


@dataclass
class Stage:
    """One federation of real processes.

    Attributes:
        base: a folder.
        charter: of the run.
        folders: by party.
        processes: every party's `site start`.
        config: of the server.
        port: of the server.
        server: its process.
    """

    base: Path
    charter: Charter
    folders: Mapping[str, Path]
    processes: Processes
    config: Path
    port: int
    server: subprocess.Popen[bytes]

    def parties(self, role: Role) -> list[str]:
        """Return the parties of a role."""
        return [name for name in self.folders if self.charter.roster.party(name).role is role]

    def status(self) -> Status | None:
        """Return how far the run is, as the aggregator's own file says."""
        with contextlib.suppress(UsageError):
            return read_status(place_of(self.folders[AGGREGATOR_NAME]))
        return None

    def round(self) -> int:
        """Return the round that the run is in; 0 before the first."""
        found = self.status()
        return found.round if found is not None else 0

    def finished(self) -> bool:
        """Tell whether the aggregator wrote its result."""
        return (place_of(self.folders[AGGREGATOR_NAME]) / "run" / "result.json").is_file()

    def refused(self) -> bool:
        """Tell whether a party refused, which ends the run."""
        found = self.status()
        return found is not None and found.state == State.REFUSED

    def over(self) -> bool:
        """Tell whether all parties' processes ended."""
        return all(process.poll() is not None for process in self.processes.running.values())

    def up(self, place: str) -> bool:
        """Tell whether the server, or a party's session and carrier, are at work."""
        if place == SERVER:
            return self.server.poll() is None
        kinds = {kind for where, kind, _ in self.census() if where == place}
        return "carrier" in kinds and at_work(place_of(self.folders[place]))

    def census(self) -> dict[tuple[str, str, int], int]:
        """Return the memory (bytes) of every process by party, kind and number."""
        import psutil

        found = {}
        leaders = {name: process.pid for name, process in self.processes.running.items()}
        for name, pid in {**leaders, SERVER: self.server.pid}.items():
            with contextlib.suppress(psutil.Error):
                leader = psutil.Process(pid)
                own = "server" if name == SERVER else "supervisor"
                found[name, own, pid] = leader.memory_info().rss
                for child in leader.children(recursive=True):
                    found[name, _kind(child, pid), child.pid] = child.memory_info().rss
        return found

    def number(self, party: str, kind: str) -> int | None:
        """Return the number of a party's process of one kind; None where there is none now."""
        numbers = [pid for (where, named, pid) in self.census() if (where, named) == (party, kind)]
        return numbers[0] if len(numbers) == 1 else None

    def restart(self, gone: Collection[str] = ()) -> None:
        """Start what is dead, as systemd would (``Restart=``), but for parties that are gone."""
        if self.server.poll() is not None:
            self.server = start_server(self.config, self.port)
        for name, process in self.processes.running.items():
            if name not in gone and process.poll() not in (None, 0):
                kill_group(process.pid)
                self.processes.start(name)


def _kind(process: Any, supervisor: int) -> str:
    """Return of which kind a process is that a party's supervisor started."""
    if "broker.carrier" in " ".join(process.cmdline()):
        return "carrier"
    return "session" if process.ppid() == supervisor else "answers"


def until(holds: Callable[[], bool], seconds: float, pause: float = 0.1) -> bool:
    """Wait until something holds; return whether it did in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def signalled(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_group(pid: int) -> None:
    """Kill a party's `site start` and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


@contextlib.contextmanager
def staged(base: Path, rounds: int, deadline: int) -> Iterator[Stage]:
    """Yield a federation with all its processes started; none is left afterwards."""
    port = free_port()
    charter, folders = agreed(base / "parties", settings(rounds), port, deadline)
    config = write_config([charter], base / "parties" / "broker", listen=f"localhost:{port}")
    (base / "tap").mkdir(mode=0o700)
    paths = [str(TAP), str(_HOUSE), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    os.environ["SECURE_FGL_SOAK_TAP"] = str(base / "tap")
    server = start_server(config, port)
    with Processes(folders, None) as processes:
        stage = Stage(base, charter, folders, processes, config, port, server)
        try:
            yield stage
        finally:
            stage.server.kill()
            stage.server.wait()
