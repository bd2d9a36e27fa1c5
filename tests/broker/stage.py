"""Parties with folders and keys of their own, one charter, and a real server for their processes.

A party's session and carrier are real processes, but for whole runs they are forked off this one,
which has imported what a fresh interpreter would import first: the same code, seconds earlier (see
`tests.forked`). The rehearsals of `test_rehearsal` start them as they are started in use.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from audits.evidence.charter_file import REHEARSED
from protocols.evidence.ledger import read_lines
from protocols.plan.plan import roles_of
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters import joining
from secure_fgl.charters.broker import Broker, new_carrier_key
from secure_fgl.charters.charter import Charter
from secure_fgl.charters.party import new_identity
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.isolation import sandbox, worker
from secure_fgl.isolation.forked import lose_descriptors
from secure_fgl.sites import session, start
from secure_fgl.sites.status import Status, read_status
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.hand_overs import gather_files, write_hand_over
from secure_fgl.transports.broker import carrier
from secure_fgl.transports.broker.config import connection, keep_connection, new_root, write_config
from secure_fgl.transports.broker.server import free_port, running
from tests import forked, kept

SESSION, CARRIER = "session", "carrier"
_MAINS = {start._SESSION: (SESSION, session.main), start._CARRIER: (CARRIER, carrier.main)}


def banks(policy: str = "unsafe_plaintext", *, rounds: int = 2, clients: int = 5) -> Config:
    """Return a small run of FedAvg on data that needs no file."""
    return Config.parse(
        {
            "algorithm": {"name": "fed_avg", "rounds": rounds},
            "model": {"hidden": 8},
            "data": {
                "name": "synthetic_banks",
                "options": {"customers": 40, "transactions": 60, "banks": clients},
                "partition": {"name": "by_owner", "clients": clients},
            },
            "policy": policy,
            "seed": 1,
        }
    )


@dataclass
class Stage:
    """Everybody's folder and the charter that all signed."""

    base: Path
    charter: Charter
    folders: Mapping[str, Path]
    broker: Path

    @property
    def run(self) -> str:
        return self.charter.run

    @property
    def others(self) -> list[str]:
        return [name for name in self.folders if name != AGGREGATOR_NAME]

    @property
    def port(self) -> int:
        return int(self.charter.broker.urls[0].rpartition(":")[2])

    def side(self, name: str) -> Path:
        """Return a party's side of the run."""
        return self.folders[name] / "runs" / self.run / "run"

    def status(self, name: str) -> Status:
        return read_status(self.side(name).parent)

    def log(self, name: str) -> str:
        """Return what a party's processes printed, and its own log."""
        files = [self.folders[name] / "start.log", *self.folders[name].glob("runs/*/*.log")]
        files += self.folders[name].glob("*.log")
        return "".join(file.read_text("utf-8", "replace") for file in {*files} if file.exists())

    def result(self) -> dict[str, Any]:
        """Return what the aggregator wrote at the end."""
        found: dict[str, Any] = json.loads((self.side(AGGREGATOR_NAME) / "result.json").read_text())
        return found

    def entries(self, name: str) -> list[dict[str, Any]]:
        """Return a party's ledger as it stands."""
        file = self.side(name) / "ledger" / f"{name}.jsonl"
        data = file.read_bytes() if file.exists() else b""
        return [entry for entry, _ in read_lines(data[: data.rfind(b"\n") + 1])]

    def asked(self) -> int:
        """Return the round that the aggregator is in."""
        with contextlib.suppress(Exception):
            return self.status(AGGREGATOR_NAME).round
        return 0

    def connection(self, name: str) -> carrier.Connection:
        return connection(self.charter, name)

    def seed(self, name: str) -> str:
        """Return the seed of a party's connection."""
        return (self.folders[name] / "carrier" / carrier.KEY_FILE).read_text().strip()

    def gathered(self) -> Run:
        """Let everybody hand over, and put the sides together."""
        out = self.base / "gathered" / self.run
        out.parent.mkdir(exist_ok=True)
        zips = [
            write_hand_over(folder, out.parent / f"{self.run}.{name}.zip", run=self.run)[0]
            for name, folder in self.folders.items()
        ]
        gather_files(zips, out)
        return Run(out)


def assemble(
    config: Config, base: Path, *, broker: Path | None = None, url: str = "", deadline: int = 60
) -> Stage:
    """Let every party make its keys, agree on one charter and keep it.

    Args:
        config: of the run.
        base: each party gets a folder in it.
        broker: the server's folder; by default one in `base`.
        url: of the server; by default at a free port.
        deadline: of the charter, seconds.
    """
    federation = Federation.from_config(config)
    known = roles_of(federation.plan(), federation.policy)
    folders = {name: base / "parties" / name for name in known}
    announced = [new_identity(folders[name], name, role) for name, role in known.items()]
    carriers = {name: new_carrier_key(folder) for name, folder in folders.items()}
    place = broker or base / "broker"
    where = Broker((url or f"tls://localhost:{free_port()}",), new_root(place), deadline)
    charter = Charter.draw_up(
        announced,
        carriers,
        broker=where,
        plan=federation.plan(),
        policy=federation.policy,
        config=config,
        organisations={name: f"{REHEARSED}{name}" for name in known},
    )
    return _kept(Stage(base, charter, folders, place))


def again(stage: Stage, config: Config) -> Stage:
    """Let the same parties agree on one more run."""
    federation, first = Federation.from_config(config), stage.charter
    charter = Charter.draw_up(
        [first.roster.party(name) for name in first.carriers],
        first.carriers,
        broker=first.broker,
        plan=federation.plan(),
        policy=federation.policy,
        config=config,
        organisations=first.organisations,
    )
    return _kept(Stage(stage.base, charter, stage.folders, stage.broker))


def _kept(stage: Stage) -> Stage:
    charter = stage.charter
    for folder in stage.folders.values():
        charter = joining.sign(folder, charter)
    for name, folder in stage.folders.items():
        joining.keep(folder, charter)
        keep_connection(folder, charter, name)
    return Stage(stage.base, charter, stage.folders, stage.broker)


@contextlib.contextmanager
def serving(*stages: Stage) -> Iterator[Any]:
    """Run one server for the runs of these stages, which share a broker's folder."""
    first = stages[0]
    config = write_config(
        [stage.charter for stage in stages], first.broker, listen=f"localhost:{first.port}"
    )
    with running(config, first.port) as server:
        yield server


class Fork:
    """A forked child, with what is used of `subprocess.Popen`.

    Args:
        work: what it does, with its own code as the result.
        log: what it prints goes there.
        stdin: becomes its standard input; None: nothing.
    """

    def __init__(self, work: Callable[[], int], log: Path, stdin: int | None = None) -> None:
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid:
            return
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, 0)
            out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(out, 1)
            os.dup2(out, 2)
            lose_descriptors(2)
            sys.stdout, sys.stderr = (open(n, "w", closefd=False) for n in (1, 2))  # noqa: SIM115
            os._exit(work())
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(70)

    def poll(self) -> int | None:
        """Return its code once it ended."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code

    def wait(self, timeout: float = 30.0) -> int:
        """Return its code; fails when it does not end in time."""
        until(lambda: self.poll() is not None, seconds=timeout)
        return self._code or 0

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class _Worker(forked.ForkedWorker):
    """A worker that keeps no file of its session, so that it ends with it."""

    def __init__(self, channel: Any) -> None:
        self._status = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.dup2(channel.fileno(), 3)
                lose_descriptors(3)
                worker.serve(3)
            finally:
                os._exit(0)


class Sites:
    """Every party's `site start`, forked; all end with the context.

    Attributes:
        running: by party.
    """

    def __init__(self, stage: Stage, names: Sequence[str] | None = None) -> None:
        forked.warm()
        self.stage, self._names = stage, list(names if names is not None else stage.folders)
        self.running: dict[str, Fork] = {}
        self.planted: dict[str, Callable[[], None]] = {}

    def __enter__(self) -> Sites:
        for name in self._names:
            self.start(name)
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 20
        try:
            for process in self.running.values():
                process.wait(max(0.1, deadline - time.monotonic()))
        finally:
            for name, process in self.running.items():
                process.kill()
                for kind in (SESSION, CARRIER):
                    with contextlib.suppress(OSError, ValueError):
                        os.kill(int(self._file(name, kind).read_text()), signal.SIGKILL)

    def start(self, name: str, *, again: bool = False) -> Fork:
        """Start a party's processes."""
        folder, stage = self.stage.folders[name], self.stage

        def work() -> int:
            setattr(start, "subprocess", SimpleNamespace(Popen=self._popen(name)))  # noqa: B010
            setattr(start, "can_fork", lambda: False)  # noqa: B010
            more = ["--again"] if again else []
            return start.main([str(folder), "--run", stage.run, *more])

        self.running[name] = Fork(work, folder / "start.log")
        return self.running[name]

    def _popen(self, name: str) -> Callable[..., Fork]:
        """Return what stands for `subprocess.Popen` in `start`."""

        def popen(
            command: Sequence[str], *, stdin: int, env: Mapping[str, str], start_new_session: bool
        ) -> Fork:
            kind, main = _MAINS[command[3]]

            def work() -> int:
                os.environ.update(env)
                kept._looked_at[0] = True
                sandbox.spawn = _Worker
                self.planted.get(f"{name} {kind}", lambda: None)()
                return main(command[4:])

            process = Fork(work, self.stage.folders[name] / "start.log", stdin)
            self._file(name, kind).write_text(str(process.pid))
            return process

        return popen

    def _file(self, name: str, kind: str) -> Path:
        return self.stage.folders[name] / f"{self.stage.run}.{kind}.pid"

    def pid(self, name: str, kind: str = SESSION) -> int:
        """Return the number of a party's process, as it was last started."""
        until(lambda: self._file(name, kind).exists() and bool(self._file(name, kind).read_text()))
        return int(self._file(name, kind).read_text())

    def kill(self, name: str, kind: str = SESSION) -> None:
        """Kill a party's process, and wait until another one is in its place."""
        before = self.pid(name, kind)
        os.kill(before, signal.SIGKILL)
        until(lambda: self.pid(name, kind) != before)

    def over(self) -> bool:
        """Tell whether all of them ended; fails where one did so with a code."""
        for name, process in self.running.items():
            assert process.poll() in (None, 0), f"{name}: {self.stage.log(name)}"
        return all(process.poll() == 0 for process in self.running.values())

    def finish(self, seconds: float = 120.0) -> None:
        """Wait until the run is over for all."""
        try:
            until(self.over, seconds=seconds)
        except AssertionError as error:
            logs = "\n".join(f"== {n}\n{self.stage.log(n)}" for n in self.running)
            raise AssertionError(f"{error}\n{logs}") from error


def until(holds: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Wait until something holds; fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@dataclass
class Memory:
    """Runs in one process, each made once: what a run between organisations has to equal."""

    base: Path
    made: dict[str, Run] = field(default_factory=dict)

    def run(self, config: Config) -> Run:
        """Return the run of a configuration."""
        key = config.model_dump_json()
        if key not in self.made:
            out = self.base / str(len(self.made))
            self.made[key] = Federation.from_config(config).run(out=out)
        return self.made[key]
