"""What a rehearsal needs of its own process: signals that end all of it, a variable for sites."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from secure_fgl.store.budgets import VARIABLE as BUDGETS

__all__ = ["as_interrupts", "budgets_at", "ending_as_one", "held_back"]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ending_as_one(work: Path) -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a rehearsal as Ctrl-C does, with nobody left behind."""
    try:
        with as_interrupts():
            yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Every process was ended; what each party kept is in {work}"
        ) from None


@contextlib.contextmanager
def as_interrupts() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end what follows as Ctrl-C does; in the main thread alone."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGHUP) if main else ()
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def budgets_at(store: str | None) -> Iterator[None]:
    """Let the sites' processes keep budgets where the configuration says."""
    before = os.environ.get(BUDGETS)
    if store is not None:
        os.environ[BUDGETS] = str(Path(store).expanduser().resolve())
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(BUDGETS, None)
        else:
            os.environ[BUDGETS] = before


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold Ctrl-C and its like back until this is over.

    Between a process's start and the note of it, and while all are ended, an interrupt would leave
    one behind.
    """
    if threading.current_thread() is not threading.main_thread():  # signals go to that one
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
