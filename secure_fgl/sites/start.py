"""Keeps a party's process and its carrier at work until the run is over.

It loads the code of a session, once, and no key, file or plug-in of it: the party's process is
forked off it. A process that crashed is started again: the party takes up the
state that it kept (ADR 0009), the carrier connects anew.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

from protocols.errors import SecureFglError
from secure_fgl.charters.broker import CARRIER
from secure_fgl.cli._shared.verb import exit_code
from secure_fgl.errors import BROKEN, BUDGET, DRIFT, USAGE, UsageError
from secure_fgl.isolation.forked import ONE_THREAD, Forked, can_fork
from secure_fgl.reasons import explain
from secure_fgl.sites.stopped import go_on, only_one_start, was_stopped
from secure_fgl.store.sides.party_side import RUNS, place_of
from secure_fgl.transports.broker.channel import ASK, SOCKET, hand_over, socket_of

__all__ = ["HOUSE", "NOT_SEPARATED", "carry", "load", "main", "start"]

NOT_SEPARATED = "NOT SEPARATED: all parties are one person's here, who holds everybody's keys"
"""What a rehearsal's run says of itself."""
HOUSE = str(Path(__file__).resolve().parents[2])
"""The folder of all floors, so that a process finds ours whatever folder it was started in."""
_SESSION, _CARRIER = "secure_fgl.sites.session", "secure_fgl.transports.broker.carrier"
_KEPT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE")
"""What of the environment a carrier is given."""
_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before each next start; then the last one
_LONG = 60.0  # seconds of work after which a crash is a new one
_LOOK_SECONDS = 0.2
_SAID_WHY = (USAGE, BROKEN, DRIFT, BUDGET)  # it said what to do; another start would say it again
_UP = b"u"  # `session.UP`
_LATE = ("torch._dynamo", "torch_geometric.nn.conv.gcn_conv", "tenseal")
"""What a session imports once it trains or encrypts."""


def start(
    folder: str | Path,
    *,
    run: str | None = None,
    socket_at: Path | None = None,
    users: Sequence[int] = (),
    again: bool = False,
    say: Callable[[str], None],
) -> int:
    """Keep a party's process at work, and its carrier unless another user runs that one.

    A party's process that says what its operator has to do, or does not come up the first time, is
    not started again.

    Args:
        folder: the party's.
        run: the run's name; None: the one run that the party joined.
        socket_at: of the sockets, without the run's name; by default in the party's folder.
        users: whose carrier may call; nobody named: this user's, which is started here.
        again: go on though the site was stopped.
        say: prints a line for the operator.

    Returns:
        The exit code: 0 where the run is over or the site was ended.

    Raises:
        UsageError: it is no party's folder, or the party never joined that run; the run is at work
            already, or was stopped.
        OSError: the party's folder takes no file.
    """
    party = Path(folder)
    if not (party / "identity.json").is_file():
        raise UsageError(f"{party} is not a party's folder.", fix="name the folder of site new")
    joined = place_of(party, run)
    load()
    with only_one_start(joined):
        if again:
            go_on(joined)
        if was_stopped(joined):
            raise UsageError(
                "This site was stopped.",
                why="its operator ran site stop; nothing leaves until site start has --again",
                fix="to go on with the run: secure-fgl site start as before, with --again",
            )
        listens = socket_of(socket_at or party / SOCKET, joined.name)
        callers = [str(user) for user in users or [os.geteuid()]]
        with _ends() as ended:
            session = [_SESSION, str(party), joined.name, str(listens), *callers]
            party_process = _Process(session, say, "The session", forks=True)
            carrier = None if users else _carrier(party / CARRIER, joined.name, listens, say, party)
            return _kept_up(joined, party_process, carrier, ended, say)


def carry(folder: Path, *, run: str, socket_at: Path, say: Callable[[str], None]) -> int:
    """Keep a carrier at work, where it has a user of its own.

    Args:
        folder: of the carrier.
        run: the run's name.
        socket_at: of the party's sockets, without the run's name.
        say: prints a line for the operator.

    Returns:
        The exit code; it ends only when it is told to, or where the folder holds no such run.
    """
    with _ends() as ended:
        process = _carrier(folder, run, socket_of(socket_at, run), say, None)
        try:
            while not ended():
                if (code := process.look()) in _SAID_WHY:
                    return code
                select.select(process.watched, [], [], _LOOK_SECONDS)
        finally:
            process.kill()
    return 0


def _carrier(
    folder: Path, run: str, listens: Path, say: Callable[[str], None], party: Path | None
) -> _Process:
    secret = [] if party is None else [party / "identity.json", party / "keys", party / RUNS]
    closed = [word for path in secret for word in ("--secret", str(path))]
    arguments = [_CARRIER, str(folder), run, str(listens), *closed]
    return _Process(arguments, say, "The carrier", meets=listens)


@dataclass
class _Process:
    """One of our processes, started again with growing pauses when it crashed.

    Attributes:
        module: and its arguments.
        say: prints a line for the operator.
        name: in these lines.
        forks: whether it is the session, whose code this process has loaded.
        meets: of a carrier, where its party listens.
        up: whether the process ever said that it is ready.
    """

    module: Sequence[str]
    say: Callable[[str], None]
    name: str
    forks: bool = False
    meets: Path | None = None
    up: bool = False
    _running: subprocess.Popen[bytes] | Forked | None = None
    _control: socket.socket | None = None
    _began: float = 0.0
    _crashes: int = 0
    _next: float = 0.0
    _ended: bool = field(default=False)

    def look(self) -> int | None:
        """Start the process where it is due; return its exit code when it has just ended."""
        if self._running is None:
            if time.monotonic() >= self._next:
                self._start()
            return None
        if self._control is not None and select.select([self._control], [], [], 0)[0]:
            self._hear()
        code = self._running.poll()
        if code is None:
            return None
        self._forget()
        self._crashes = 0 if time.monotonic() - self._began > _LONG else self._crashes
        self._next = time.monotonic() + _PAUSES[min(self._crashes, len(_PAUSES) - 1)]
        self._crashes += 1
        return code

    @property
    def watched(self) -> list[socket.socket]:
        """What becomes readable when the process has something to say."""
        return [self._control] if self._control is not None else []

    def end(self) -> None:
        """Tell the process to end between two exchanges."""
        if self._control is not None and not self._ended:
            self._ended = True
            self._control.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End the process at once, and wait for that."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._forget()

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        # Ours is found by its own path, whatever folder this was started in.
        paths = [HOUSE, *filter(None, [os.environ.get("PYTHONPATH")])]
        kept = os.environ if self.meets is None else {
            name: os.environ[name] for name in _KEPT if name in os.environ
        }  # fmt: skip
        environment = {**kept, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-P", "-m", *self.module]
        with theirs:
            if self.forks and can_fork():
                self._running = Forked(
                    partial(_session, self.module[1:]), stdin=theirs.fileno(), name="fgl-session"
                )
            else:
                self._running = subprocess.Popen(  # noqa: S603 - our own
                    command, stdin=theirs.fileno(), env=environment,
                    start_new_session=self.meets is not None,  # deaf to the terminal
                )  # fmt: skip
        self._began, self._ended = time.monotonic(), False

    def _hear(self) -> None:
        word = b""
        with contextlib.suppress(OSError):
            word = self._control.recv(64) if self._control is not None else b""
        if self.meets is not None and self._control is not None and word:
            for _ in range(word.count(ASK)):
                hand_over(self._control, self.meets)
        elif _UP in word:
            self.up = True
            self.say("The site is up.")
        elif not word and self._control is not None:  # it is ending
            self._control.close()
            self._control = None

    def _forget(self) -> None:
        if self._control is not None:
            self._control.close()
        self._running = self._control = None


def _kept_up(
    joined: Path,
    party: _Process,
    carrier: _Process | None,
    ended: Callable[[], bool],
    say: Callable[[str], None],
) -> int:
    try:
        while True:
            if carrier is not None and (code := carrier.look()) is not None:
                say(f"The carrier ended (code {code}); it is started again.")
            code = party.look()
            if ended():
                party.end()
            if code is not None:
                if ended() or was_stopped(joined):
                    stopped = was_stopped(joined)
                    say("The site was stopped." if stopped else "Ended; the run can go on.")
                    return 0
                if code == 0:
                    say("The run is over at this site.")
                    return 0
                if not party.up and code < 0:
                    say(f"The session was ended by signal {-code} before it was up.")
                if not party.up or code in _SAID_WHY:
                    return code if 0 < code < 128 else 1
                say(f"The session ended without an order (code {code}); it is started again.")
            select.select([*party.watched, *(carrier.watched if carrier else [])], [], [],
                          _LOOK_SECONDS)  # fmt: skip
    finally:
        party.kill()
        if carrier is not None:
            carrier.kill()


def _session(arguments: Sequence[str]) -> int:
    return int(importlib.import_module(_SESSION).main(arguments))


def load() -> None:
    """Import all that a session and its answers need, so that a fork has it.

    Learning is deterministic with one thread, and so is every process that follows: threads that
    wait for each other on a machine with other work take more time than they save.
    """
    os.environ.update(ONE_THREAD)
    for name in (_SESSION, "secure_fgl.isolation.worker", *_LATE):
        importlib.import_module(name)
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)


@contextlib.contextmanager
def _ends() -> Iterator[Callable[[], bool]]:
    """Let SIGTERM and Ctrl-C end the process in order; yields what tells that one came."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {n: signal.signal(n, note) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Be `site start` of one party of a rehearsal: ``python -m secure_fgl.sites.start``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("party", type=Path)
    parser.add_argument("--run")
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args(arguments)

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    try:
        return start(given.party, run=given.run, again=given.again, say=say)
    except (SecureFglError, OSError) as error:
        for line in explain(error):
            say(line)
        return exit_code(error)


if __name__ == "__main__":
    raise SystemExit(main())
