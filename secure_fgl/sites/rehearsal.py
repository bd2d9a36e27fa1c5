"""A run between organisations, rehearsed on one machine with real processes.

Each party gets a folder and keys of its own, all sign one charter, a broker carries for processes
of every party, every party hands its side over, and the sides are gathered into one run folder: the
steps of docs/pilot.md, played by one program. One person holds everybody's keys, so it shows that a
run works and nothing about who could read what; the charter calls every organisation "Rehearsal of
…", and so does the report.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from audits.evidence.charter_file import REHEARSED
from audits.evidence.steps import Case, run_checks
from audits.evidence.verify import checks_of
from protocols.disclosures.match.run import shared_key
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Plan, roles_of
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters import joining
from secure_fgl.charters.broker import Broker, new_carrier_key
from secure_fgl.charters.charter import Charter
from secure_fgl.charters.facts import Facts
from secure_fgl.charters.party import ROOT_VARIABLE, new_identity, new_tag_key
from secure_fgl.config import OWN, Config
from secure_fgl.data.own import OwnSpec
from secure_fgl.devices import chosen
from secure_fgl.errors import USAGE, UsageError
from secure_fgl.isolation.forked import ONE_THREAD, Forked, can_fork
from secure_fgl.plugins.in_use import Plugins
from secure_fgl.run.simulation import Progress
from secure_fgl.sites.start import HOUSE, NOT_SEPARATED, load
from secure_fgl.sites.start import main as start
from secure_fgl.sites.status import State, read_status
from secure_fgl.sites.surroundings import budgets_at, ending_as_one, held_back
from secure_fgl.store.files import Folder
from secure_fgl.store.finished_run import FORMATS, Run
from secure_fgl.store.run_folder import RunFolder
from secure_fgl.store.sides.hand_overs import gather_files, write_hand_over
from secure_fgl.store.sides.party_side import NAME as LOG
from secure_fgl.store.sides.party_side import place_of
from secure_fgl.transports.broker.config import keep_connection, new_root, write_config
from secure_fgl.transports.broker.server import free_port, running

__all__ = ["Processes", "rehearse"]


class Rehearsed(Protocol):
    """What is needed of a `secure_fgl.federation.Federation`."""

    plugins: Plugins

    @property
    def policy(self) -> PrivacyPolicy:
        """The policy of the run."""

    @property
    def config(self) -> Config:
        """The configuration."""

    def own_spec(self) -> OwnSpec | None:
        """Return what sites agreed on about tables of their own."""


_LOOK_SECONDS = 0.05
_END_SECONDS = 15.0
_LONGEST = 1 << 20  # bytes of a log that are looked at


def rehearse(
    federation: Rehearsed,
    plan: Plan,
    out: Path,
    progress: Progress | None = None,
    tell: Callable[[str], None] = lambda line: None,
    *,
    simulated: bool = False,
) -> Run:
    """Play the whole of a run between organisations on this machine; return the gathered run.

    No process is left when this returns or raises. What each party kept lies beside the run
    folder, in ``OUT.parties``, also where something went wrong.

    Args:
        federation: what is run.
        plan: of it.
        out: the run folder to make.
        progress: called after each round with what was scored in it.
        tell: called with a line for people at each step.
        simulated: whether something is asked for that only a simulation has.

    Raises:
        UsageError: the configuration is one of a simulation alone, or a party stopped; it is
            named, with what its own log says.
    """
    _check(federation, simulated)
    RunFolder(out)  # refuses what is there
    work = Path(f"{out}.parties").resolve()
    stage = _Stage(federation, plan, work, _folders(federation, plan, work))
    with ending_as_one(work), budgets_at(federation.config.budget.store):
        forks = can_fork() and not federation.plugins.files
        charter = stage.agreed_apart() if forks else stage.agree()
        tell(f"{len(stage.folders)} parties signed the charter of run {charter.run[:8]}.")
        tell(NOT_SEPARATED)
        listen = charter.broker.urls[0].removeprefix("tls://")
        config = write_config([charter], work / "broker", listen=listen)
        parties = Processes(stage.folders, federation.config.data.root, forks=forks)
        watch = _Watching(stage.folders, parties, progress, plan.rounds)
        with running(config, int(listen.rpartition(":")[2])) as server, parties:
            while not parties.over():
                if server.poll() is not None:
                    raise UsageError("The broker's server ended.", fix=f"see {work / 'broker'}")
                watch()
                time.sleep(_LOOK_SECONDS)
            watch()
    return _gathered(stage.folders, work, out)


def _check(federation: Rehearsed, simulated: bool) -> None:
    """Raise UsageError for what only a simulation can have."""
    config = federation.config
    chosen(config)  # of a GPU: sites have none
    if simulated or config.faults.drop or config.tracking:
        raise UsageError(
            "A rehearsal cannot be resumed or tracked, and takes neither faults.drop, "
            "approvals nor data that are given in memory.",
            why="its parties run in processes of their own, sign a charter, and read data by name",
            fix="leave it out, or --set transport.name=memory",
        )
    if config.data.name == OWN and not config.data.partition.names:
        raise UsageError(
            "Sites that run apart find their own folder by their own name.",
            why="the configuration only says how many clients there are",
            fix="name them, as their folders are called: data.partition.names",
        )


def _folders(federation: Rehearsed, plan: Plan, work: Path) -> dict[str, Path]:
    return {name: work / "parties" / name for name in roles_of(plan, federation.policy)}


@dataclass
class _Stage:
    """Everybody's folder, before anything runs."""

    federation: Rehearsed
    plan: Plan
    work: Path
    folders: Mapping[str, Path]

    def agree(self) -> Charter:
        """Make identities and a charter, and let everybody sign and keep it."""
        try:
            self.work.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise UsageError(
                f"{self.work} cannot be made ({error.strerror}).",
                why="it is there from another rehearsal, or its folder is not writable",
                fix="choose another --out, or remove it",
            ) from error
        roles = roles_of(self.plan, self.federation.policy)
        organisations = {name: f"{REHEARSED}{name}" for name in roles}
        announced, carriers = [], {}
        for name, role in roles.items():
            public = new_identity(self.folders[name], name, role)
            carriers[name] = new_carrier_key(self.folders[name])
            facts = Facts(public, organisations[name], carriers[name])
            (self.folders[name] / f"{name}.facts.json").write_bytes(facts.encode())
            announced.append(facts.party)
        charter = Charter.draw_up(
            announced,
            carriers,
            broker=Broker((self._url(),), new_root(self.work / "broker")),
            plan=self.plan,
            policy=self.federation.policy,
            config=self.federation.config,
            organisations=organisations,
            spec=self.federation.own_spec(),
        )
        for folder in self.folders.values():
            charter = joining.sign(folder, charter)
        kept = {name: joining.keep(folder, charter) for name, folder in self.folders.items()}
        for name, folder in self.folders.items():
            keep_connection(folder, charter, name)
        self._bring(roles, {name: kit.folder for name, kit in kept.items()})
        return charter

    def agreed_apart(self) -> Charter:
        """Do the same in a child, so that this process holds no key and can be forked."""
        ours, theirs = os.pipe()

        def work() -> int:
            try:
                self.agree()
                return 0
            except UsageError as error:
                os.write(1, json.dumps([error.what, error.why, error.fix]).encode()[:4096])
                return USAGE

        child = Forked(work, output=theirs)
        os.close(theirs)
        with os.fdopen(ours, "rb") as answer:
            said = answer.read(1 << 16)
        if child.wait() == 0:
            folder = place_of(self.folders[AGGREGATOR_NAME])
            return Charter.decode((folder / "charter.json").read_bytes())
        with contextlib.suppress(ValueError):
            what, why, fix = json.loads(said)
            raise UsageError(what, why=why, fix=fix)
        raise UsageError(
            "No charter could be drawn up.", why=said.decode("utf-8", "replace")[-300:]
        )

    def _url(self) -> str:
        """Return where the broker listens: where the configuration says, or at any free port."""
        url = self.federation.config.transport.url
        if url is None:
            return f"tls://localhost:{free_port()}"
        if not re.fullmatch(r"tls://(localhost|127\.0\.0\.1):[0-9]+", url):
            raise UsageError(
                f"A rehearsal starts a broker of its own, and {url[:80]} is not on this machine.",
                why="transport.url is where parties of a pilot meet, for charter draw",
                fix="--set transport.url=null, or tls://localhost:PORT",
            )
        return url

    def _bring(self, roles: Mapping[str, Role], places: Mapping[str, Path]) -> None:
        """Give parties what operators bring by hand: plug-ins, and the key of item tags."""
        for file in self.federation.plugins.files:
            for place in places.values():
                (place / "plugins").mkdir(mode=0o700, exist_ok=True)
                shutil.copyfile(file, place / "plugins" / file.name)
        if shared_key(self.federation.policy.rules.get(Disclosure.MATCH, ())):
            first, *others = [name for name, role in roles.items() if role is Role.CLIENT]
            key = new_tag_key(self.folders[first])
            for name in others:
                shutil.copy2(key, places[name] / key.name)


class Processes:
    """Every party's `site start`, each in a process of its own; all end with the context.

    Args:
        folders: by party.
        data_root: of the data; None where the configuration names none.
        forks: whether they are forked off this process, which holds no key.

    Attributes:
        running: by party.
    """

    def __init__(
        self, folders: Mapping[str, Path], data_root: str | None, *, forks: bool = False
    ) -> None:
        self._folders, self._forks = folders, forks
        self._root = Path(data_root).expanduser().resolve() if data_root is not None else None
        self.running: dict[str, subprocess.Popen[bytes] | Forked] = {}

    def __enter__(self) -> Processes:
        """Start all of them."""
        if self._forks:
            load()
        with held_back():
            for name in self._folders:
                self.start(name)
        return self

    def __exit__(self, *error: object) -> None:
        """End all of them, and what they started."""
        with held_back():
            for process in self.running.values():
                process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + _END_SECONDS
            for process in self.running.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # each leads a group of its own
                process.wait()

    def start(self, name: str, *arguments: str) -> None:
        """Start a party's processes; what they print goes to ``start.log`` in its folder."""
        folder, root = self._folders[name], {}
        if self._root is not None:
            root = {ROOT_VARIABLE: str(self._root)}

        def work() -> int:
            os.environ.update(root)
            return start([str(folder), *arguments])

        if self._forks:
            with (folder / "start.log").open("ab") as log:
                self.running[name] = Forked(work, output=log.fileno(), leads=True, name="fgl-start")
            return
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [
            HOUSE, os.environ.get("PYTHONPATH", "")
        ]))}  # fmt: skip
        environment |= root | ONE_THREAD
        with (folder / "start.log").open("ab") as log:
            self.running[name] = subprocess.Popen(  # noqa: S603 - our own
                [sys.executable, "-P", "-m", "secure_fgl.sites.start", str(folder), *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                start_new_session=True,
            )  # fmt: skip

    def over(self) -> bool:
        """Tell whether all of them ended; raises UsageError where one failed."""
        for name, process in self.running.items():
            if process.poll() not in (None, 0):
                raise UsageError(
                    f"{name} stopped: {_last_line(self._folders[name])}",
                    why="the rehearsal ends with the first party that stops",
                    fix=f"see {self._folders[name] / LOG}",
                )
        return all(process.poll() == 0 for process in self.running.values())


@dataclass
class _Watching:
    """Looks at all parties while they run: who stopped, and which rounds are scored."""

    folders: Mapping[str, Path]
    processes: Processes
    progress: Progress | None
    rounds: int
    shown: int = 0

    def __call__(self) -> None:
        """Raise UsageError that names a party that stopped; report new rounds."""
        for name, folder in self.folders.items():
            state = _state(place_of(folder))
            if state in (State.STOPPED, State.REFUSED):
                raise UsageError(
                    f"{name} {state}: {_last_line(folder)}",
                    why=_said(self.folders) or "the rehearsal ends with the first party that stops",
                    fix=f"see {folder / LOG}",
                )
        if self.progress is None:
            return
        office = place_of(self.folders[AGGREGATOR_NAME])
        scored = Folder(office).read("run/metrics.jsonl").splitlines()
        for line in scored[self.shown :]:
            metrics = json.loads(line)
            self.progress(int(metrics["round"]), self.rounds, metrics)
            self.shown += 1


def _gathered(folders: Mapping[str, Path], work: Path, out: Path) -> Run:
    """Let everybody hand over, put the sides together, and judge the whole."""
    office = Folder(place_of(folders[AGGREGATOR_NAME]) / "run")
    (work / "hand-overs").mkdir(mode=0o700)
    handed = [
        write_hand_over(folder, work / "hand-overs" / f"{name}.zip")[0]
        for name, folder in folders.items()
    ]
    gather_files(handed, out)
    folder = RunFolder(out, again=True)
    for name in office.names("checkpoints", ".npz"):  # the shared model, for whoever rehearses
        Folder(out).write(f"checkpoints/{name}", office.read(f"checkpoints/{name}"))
    result: dict[str, Any] = json.loads(office.read("result.json"))
    folder.document("result.json", {**result, "run_dir": str(folder.path)})
    run = Run(out)
    judged = Case(run.view())
    verdict = run_checks(judged, checks_of(judged)).verdict
    folder.document("result.json", {**result, "run_dir": str(folder.path), "verdict": verdict})
    run.report(FORMATS, after=judged)
    return run


def _said(folders: Mapping[str, Path]) -> str:
    """Return the last line of every party's log, by name."""
    lines = {name: _last_line(folder) for name, folder in folders.items()}
    return "; ".join(f"{name}: {line}" for name, line in lines.items() if line)


def _state(folder: Path) -> str:
    with contextlib.suppress(UsageError):  # none yet
        return read_status(folder).state
    return State.OPENING


def _last_line(folder: Path) -> str:
    """Return what a party's log says last, on one line: an entry's other lines are indented."""
    lines = Folder(folder).read(LOG, _LONGEST).decode("utf-8", "replace").splitlines()
    first = max((n for n, line in enumerate(lines) if not line.startswith(" ")), default=0)
    return " ".join(line.strip() for line in lines[first:]).partition(" ")[2]
