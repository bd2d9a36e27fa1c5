"""One process at a time for each party of a run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from secure_fgl.charters.party import PartyKit
from secure_fgl.errors import UsageError
from secure_fgl.store.files import held, open_plain

_LOCK_SECONDS = 30.0
"""How long a party waits for an earlier process of its own to end."""


@contextlib.contextmanager
def only_one(kit: PartyKit) -> Iterator[None]:
    """Hold a run at a party against a second process of the same party.

    Two sessions of one party would break everything that one of them promised.

    Raises:
        UsageError: the other process does not end in time.
    """
    file = _opened(kit.folder / "lock")
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not held(file):
            if time.monotonic() > deadline:
                raise UsageError(
                    f"Another process of {kit.name} is at work on this run.",
                    why="an earlier process has not ended yet, or site start runs twice",
                    fix="end the other process: secure-fgl site stop PARTY",
                )
            time.sleep(0.1)
        yield
    finally:
        os.close(file)  # which unlocks; so does the end of the process, however it comes


def at_work(folder: Path) -> bool:
    """Tell whether a process holds the folder of a run at a party now."""
    try:
        file = open_plain(folder / "lock", os.O_RDONLY)
    except OSError:  # no session was ever opened here
        return False
    try:
        return not held(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def _opened(path: Path) -> int:
    try:
        return open_plain(path, os.O_CREAT | os.O_RDWR)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be opened ({error.strerror}).",
            why="the disk is full, the folder is not writable, or something else lies there",
            fix="look at it, and take away what is not ours",
        ) from error
