"""The soak's federation: every party's processes, which one is of which kind, and their ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import secure_fgl
from protocols.plan.parties import roles_of
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters import joining, party
from secure_fgl.charters.charter import Charter
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.sites.ending import end, held_back
from secure_fgl.sites.lock import at_work
from secure_fgl.sites.status import State, Status, read_status
from secure_fgl.store.sides.places import place_of

TAP = Path(__file__).resolve().parent / "soak_tap"
_HOUSE = Path(secure_fgl.__file__).resolve().parents[1]
_MARKS = {
    "session": "nvflare.site.session",
    "answers": "isolation.worker",
    "relay": ".worker_process",
    "server relay": ".runner_process",
}
"""Words in the command lines of processes that others start."""


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


def agree(config: Config, folder: Path) -> tuple[Charter, dict[str, Path]]:
    """Let every party make its keys and sign one charter; return it and their folders by site."""
    federation = Federation.from_config(config)
    plan = federation.plan()
    roles = roles_of(plan, federation.policy)
    sites = {n: kits.SERVER if n == AGGREGATOR_NAME else n for n in roles}
    folders = {sites[name]: folder / name for name in roles}
    announced = [party.new_identity(folders[sites[n]], n, role) for n, role in roles.items()]
    charter = Charter.draw_up(
        announced, sites, plan=plan, policy=federation.policy, config=config,
        organisations={name: f"Soak {name}" for name in roles}, spec=federation.own_spec(),
    )  # fmt: skip
    for place in folders.values():
        charter = joining.sign(place, charter)
    for place in folders.values():
        joining.keep(place, charter)
    return charter, folders


@dataclass
class Stage:
    """One federation of real processes, and the office that conducts it."""

    base: Path
    charter: Charter
    folders: Mapping[str, Path]
    made: kits.Kits
    processes: kits.Processes
    offices: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def sites(self, role: Role) -> list[str]:
        """Return the sites of a role."""
        named = self.charter.roster.party
        return [s for s, folder in self.folders.items() if named(folder.name).role is role]

    def conduct(self, deadline: float) -> None:
        """Start ``secure-fgl conduct``, which goes on with a run that has begun."""
        office = self.folders[kits.SERVER]
        command = [sys.executable, "-m", "secure_fgl", "conduct", str(office)]
        command += ["--kit", str(self.made.admin), "--deadline", f"{deadline:.0f}s", "--resume"]
        with (self.base / "conduct.log").open("ab") as log, held_back():
            self.offices.append(
                subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    command, cwd=self.base, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )
            )  # fmt: skip

    def status(self) -> Status | None:
        """Return how far the run is, as the aggregator's own file says."""
        with contextlib.suppress(UsageError):
            return read_status(place_of(self.folders[kits.SERVER]))
        return None

    def round(self) -> int:
        """Return the round that the run is in; 0 before the first."""
        found = self.status()
        return found.round if found is not None else 0

    def finished(self) -> bool:
        """Tell whether the aggregator wrote its result."""
        return (place_of(self.folders[kits.SERVER]) / "run" / "result.json").is_file()

    def refused(self) -> bool:
        """Tell whether a party refused, which ends the run."""
        found = self.status()
        return found is not None and found.state == State.REFUSED

    def up(self, site: str) -> bool:
        """Tell whether a site's engine runs and a session of its party is at work."""
        engine = self.processes.running.get(site)
        engine_up = engine is not None and engine.poll() is None
        return engine_up and at_work(place_of(self.folders[site]))

    def census(self) -> dict[tuple[str, str, int], int]:
        """Return the memory (bytes) of every process by site, kind and number."""
        import psutil

        leaders = {("engine", s): p.pid for s, p in self.processes.running.items()}
        leaders |= {("supervisor", s): p.pid for s, p in self.processes.at_parties.items()}
        if self.offices:
            leaders["conduct", kits.SERVER] = self.offices[-1].pid
        found = {}
        for (kind, site), pid in leaders.items():
            with contextlib.suppress(psutil.Error):
                leader = psutil.Process(pid)
                for one in [leader, *leader.children(recursive=True)]:
                    named = kind if one == leader else kind_of(one)
                    if named:
                        found[site, named, one.pid] = one.memory_info().rss
        return found

    def number(self, site: str, kind: str) -> int | None:
        """Return the number of a site's process of one kind; None where there is none now."""
        numbers = [pid for (where, named, pid) in self.census() if (where, named) == (site, kind)]
        return numbers[0] if len(numbers) == 1 else None

    def restart(self, site: str) -> None:
        """Start what is dead at a site, as systemd would (``Restart=``)."""
        for pool, start in (
            (self.processes.running, self.processes.start_engine),
            (self.processes.at_parties, self.processes.start_party),
        ):
            dead = pool.get(site)
            over = dead is not None and dead.poll() is not None and dead.returncode == 0
            if over and pool is self.processes.at_parties:
                continue  # the run is over at this party
            if dead is None or dead.poll() is not None:
                if dead is not None:
                    end([dead])
                with held_back():
                    start(site)


def kind_of(process: Any) -> str:
    """Return of which kind a process is that another one started; empty for one of neither."""
    words = " ".join(process.cmdline())
    return next((kind for kind, mark in _MARKS.items() if mark in words), "")


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


@contextlib.contextmanager
def staged(base: Path, rounds: int) -> Iterator[Stage]:
    """Yield a federation with all its processes up; none is left afterwards."""
    charter, folders = agree(settings(rounds), base / "parties")
    sites = [site for site in folders if site != kits.SERVER]
    made = kits.provision(base / "kits", sites, port=kits.free_port())
    (base / "tap").mkdir(mode=0o700)
    paths = [str(TAP), str(_HOUSE), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    os.environ["SECURE_FGL_SOAK_TAP"] = str(base / "tap")
    with kits.federation(made, folders) as processes:
        stage = Stage(base, charter, folders, made, processes)
        try:
            yield stage
        finally:
            with held_back():
                end(stage.offices)
