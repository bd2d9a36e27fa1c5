"""What says that a run is stopped at a site, and that a `site start` is at work on it.

``stopped`` in the folder of a run is the operator's word; while it is there nothing is started.
``site.lock`` is held by `site start`, with the number of its process in it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from secure_fgl.errors import UsageError
from secure_fgl.store.files import held, open_plain

__all__ = ["NOTE", "at_rest", "go_on", "numbers", "only_one_start", "opened", "was_stopped"]

NOTE, _LOCK = "stopped", "site.lock"


def was_stopped(folder: Path) -> bool:
    """Tell whether this site's operator stopped a run, by its folder at the party."""
    return (folder / NOTE).exists()


def go_on(folder: Path) -> None:
    """Take the operator's word back."""
    with contextlib.suppress(FileNotFoundError):
        (folder / NOTE).unlink()


@contextlib.contextmanager
def only_one_start(folder: Path) -> Iterator[None]:
    """Hold the folder of a run at a party against a second `site start`.

    Raises:
        UsageError: another one is at work.
    """
    file = opened(folder)
    try:
        if not held(file):
            raise UsageError(
                "This site was started already.",
                why="another process of secure-fgl site start is at work on this run",
                fix="end it first: secure-fgl site stop PARTY, or Ctrl-C where it runs",
            )
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()} {numbers()}".encode(), 0)
        yield
    finally:
        os.close(file)  # which unlocks


def at_rest(folder: Path) -> bool:
    """Tell whether no `site start` is at work on a run, by its folder at the party."""
    file = opened(folder)
    try:
        return held(file)
    finally:
        os.close(file)


def numbers() -> str:
    """Return what tells apart where numbers of processes count: the boot, and the namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:  # no /proc
        return "- -"


def opened(folder: Path) -> int:
    """Return the open file that `site start` holds; raises UsageError."""
    try:
        return open_plain(folder / _LOCK, os.O_CREAT | os.O_RDWR)
    except OSError as error:
        raise UsageError(f"{folder / _LOCK} cannot be opened ({error.strerror}).") from error
