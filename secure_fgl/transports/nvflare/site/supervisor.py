"""Starts a party's process, and starts it again when it crashed or hangs.

It loads nothing of a session. ``site start`` calls it for an engine that is another user's; run as
a module it is a rehearsal's, whose engine is this user's.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import secure_fgl
from protocols.errors import SecureFglError
from secure_fgl.cli._shared.verb import exit_code
from secure_fgl.errors import BROKEN, BUDGET, DRIFT, USAGE, UsageError
from secure_fgl.reasons import explain
from secure_fgl.store.sides.places import place_of
from secure_fgl.store.sides.site_log import note
from secure_fgl.transports.nvflare.engine.listener import OTHERS_READ
from secure_fgl.transports.nvflare.site.channel import SOCKET, of_run
from secure_fgl.transports.nvflare.site.control import UP
from secure_fgl.transports.nvflare.site.leaving import (
    go_on,
    note_place,
    only_supervisor,
    was_stopped,
)
from secure_fgl.transports.nvflare.site.watch import HUNG_SECONDS, Watch

__all__ = ["NOT_SEPARATED", "main", "start"]

NOT_SEPARATED = f"NOT SEPARATED: party and engine run as one user, so {OTHERS_READ}"

_HOUSE = str(Path(secure_fgl.__file__).resolve().parents[1])
_MODULE = "secure_fgl.transports.nvflare.site.session"
_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before each next start; then the last one
_LONG = 60.0  # seconds of work after which a crash is a new one
_LOOK_SECONDS = 0.5
_HANGS = "hangs: it said nothing and did not work"
_TOLD = (USAGE, BROKEN, DRIFT, BUDGET)  # it said why; another start would say it again


def start(
    folder: str | Path,
    *,
    run: str | None = None,
    place: Path | None = None,
    users: Sequence[int],
    again: bool = False,
    hung: float = HUNG_SECONDS,
    say: Callable[[str], None],
) -> int:
    """Keep a party's process at work until its run is over, or somebody ends it.

    A process that crashed is started again and takes up the state that it kept (ADR 0009). One that
    hangs is ended first. One that says what its operator has to do, or does not come up the first
    time, is not started again.

    Args:
        folder: the party's.
        run: the run's name; None: the one run that the party joined.
        place: of the sockets, without the run's name; by default in the party's folder.
        users: whose processes may call: the engine's.
        again: go on though the site was stopped.
        hung: seconds without any sign of life after which a process that listened is ended.
        say: tells the operator what happens.

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
    with only_supervisor(joined):
        if again:
            go_on(joined)
        if was_stopped(joined):
            raise UsageError(
                "This site was stopped.",
                why="its operator ran site stop; nothing leaves until it is told to go on",
                fix="to go on with the run: secure-fgl site start as before, with --again",
            )
        listens = of_run(place or party / SOCKET, joined.name)
        note_place(joined, listens)
        arguments = [str(party), joined.name, str(listens), *map(str, users)]
        with _ends() as ended:
            command = [sys.executable, "-P", "-m", _MODULE, *arguments]
            return _kept_up(_Work(command, party, joined, ended, hung, say))


@dataclass(frozen=True)
class _Work:
    """What one supervisor does: the process's command, where it works, and `start`'s arguments."""

    command: Sequence[str]
    party: Path
    place: Path
    ended: Callable[[], bool]
    hung: float
    say: Callable[[str], None]


def _kept_up(work: _Work) -> int:
    crashes, ever = 0, False
    while True:
        began = time.monotonic()
        code, up = _run(work)
        ever = ever or up
        if work.ended() or was_stopped(work.place):
            stopped = was_stopped(work.place)
            work.say("The site was stopped." if stopped else "Ended; the run can go on.")
            return 0
        if code == 0:
            work.say("The run is over at this site.")
            return 0
        if not ever or code in _TOLD:
            return code if 0 < code < 128 else 1
        crashes = 0 if time.monotonic() - began > _LONG else crashes
        pause = _PAUSES[min(crashes, len(_PAUSES) - 1)]
        crashes += 1
        work.say(f"The session ended without an order (code {code}); it is started again.")
        _sleep(pause, work.ended)


def _run(work: _Work) -> tuple[int, bool]:
    """Start the process once; return its exit code, and whether it ever listened."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            # Ours is found by its own path, whatever folder this was started in.
            paths = [_HOUSE, *filter(None, [os.environ.get("PYTHONPATH")])]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
            process = subprocess.Popen(  # noqa: S603 - our own
                work.command, stdin=theirs.fileno(), env=environment
            )
        up = _followed(work, process, ours)
        return process.wait(), up


def _followed(work: _Work, process: subprocess.Popen[bytes], channel: socket.socket) -> bool:
    """Hear a process until it ended or was ended; return whether it ever listened."""
    watch, up, told, speaks = Watch(process.pid, seconds=work.hung), False, False, True
    while process.poll() is None:
        if work.ended() and not told:
            told = True
            channel.shutdown(socket.SHUT_WR)
        if not speaks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
        elif select.select([channel], [], [], _LOOK_SECONDS)[0]:
            said = _heard(channel)
            speaks = bool(said)  # else it is ending
            watch.beat()
            if UP in said:
                up = True
                work.say("The site is up.")
        if watch.hangs():
            work.say(f"The session {_HANGS}; it is ended.")
            note(work.party, f"the session {_HANGS}, and was ended")
            process.kill()  # and the kernel the process of its answers with it
            break
    return up


def _heard(channel: socket.socket) -> bytes:
    try:
        return channel.recv(64)
    except ConnectionError:
        return b""


def _sleep(seconds: float, ended: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not ended():
        time.sleep(0.1)


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
    """Start the party of a rehearsal: the engine runs as this user, and nothing keeps it out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("party", type=Path)
    parser.add_argument("--run")
    parser.add_argument("--socket", type=Path)
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args(arguments)

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    say(NOT_SEPARATED)
    try:
        return start(
            given.party, run=given.run, place=given.socket, users=[os.geteuid()],
            again=given.again, say=say,
        )  # fmt: skip
    except (SecureFglError, OSError) as error:
        for line in explain(error):
            say(line)
        return exit_code(error)


if __name__ == "__main__":
    raise SystemExit(main())
