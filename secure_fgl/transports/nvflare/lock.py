"""One process at a time for each party of a job."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from secure_fgl.errors import UsageError
from secure_fgl.transports.nvflare.party import PartyKit

_LOCK_SECONDS = 30.0
"""How long a party waits for an earlier process of its own to end."""

_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO may lie there


@contextlib.contextmanager
def only_one(kit: PartyKit) -> Iterator[None]:
    """Hold a run at a party against a second process of the same party.

    An engine that lost its server starts the next job while the last one's process may still be
    training, and two sessions of one party would break everything that one of them promised.

    Raises:
        UsageError: the other process does not end in time.
    """
    file = os.open(kit.folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not _locked(file):
            if time.monotonic() > deadline:
                raise UsageError(
                    f"Another process of {kit.name} is at work on this run.",
                    why="a job that was ended has not stopped yet, or two jobs run at once",
                    fix="end the other process, then hand the job in again",
                )
            time.sleep(0.1)
        yield
    finally:
        os.close(file)  # which unlocks; so does the end of the process, however it comes


def check_at_rest(folder: Path, why: str, fix: str) -> None:
    """Raise UsageError if a process of this party is at work on its run, or nobody can tell.

    Args:
        folder: of the run at the party.
        why: it may not be, as the error says.
        fix: what to do then.
    """
    try:
        file = os.open(folder / "lock", _LOOK)
    except FileNotFoundError:  # no session was ever opened here
        return
    except OSError as error:
        said = f"Nobody can tell whether a process is at work on {folder} ({error.strerror})."
        raise UsageError(
            said, why=why, fix=f"see why {folder / 'lock'} is no file of ours"
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        said = f"A process of this party is at work on the run {folder.name}."
        raise UsageError(said, why=why, fix=fix) from None
    finally:
        os.close(file)


@contextlib.contextmanager
def only_office(folder: Path) -> Iterator[None]:
    """Hold a run against a second office that hands its jobs in; the first one keeps its note.

    Raises:
        UsageError: another one is at work.
    """
    file = os.open(
        folder / "conduct.lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        if not _locked(file):
            raise UsageError(
                "This run is conducted already.",
                why="another process of secure-fgl conduct watches its job",
                fix="end that one, which leaves the job alone; then go on with --resume",
            )
        yield
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def at_work(folder: Path) -> bool:
    """Tell whether a process holds the folder of a run at a party now."""
    try:
        file = os.open(folder / "lock", _LOOK)
    except OSError:  # no session was ever opened here
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
