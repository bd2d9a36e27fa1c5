"""Raw files that would run code are refused; a guard stops what no check saw.

Unpickling runs whatever a file's writer put in. No reader of ours unpickles; a library's might, if
a check of ours missed something. While `nothing_unpickled` holds, no code of this thread finds a
class or function that a pickle names, so that nothing of the pickle runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["RawRefused", "fetches", "nothing_fetched", "nothing_unpickled"]


class RawRefused(ValueError):
    """A file of a data set is not opened, or not further.

    Args:
        path: which; None where only a library knows.
        what: what is wrong with it.
    """

    def __init__(self, path: Path | None, what: str) -> None:
        super().__init__(
            f"{path or 'a file of the data set'} is refused: {what}; most likely somebody changed "
            "or planted it, it was cut short, or the options state other sizes: delete the set's "
            "folder and let it be fetched again, or correct the options"
        )


_GUARDED: ContextVar[bool] = ContextVar("guarded", default=False)


@contextmanager
def nothing_unpickled() -> Iterator[None]:
    """Let nothing be found that a pickle names, by whichever reader; for this thread only.

    Raises:
        RawRefused: from within the reader that met such a name.
    """
    _install()
    token = _GUARDED.set(True)
    try:
        yield
    finally:
        _GUARDED.reset(token)


_FETCHES: ContextVar[bool] = ContextVar("fetches", default=True)


@contextmanager
def nothing_fetched() -> Iterator[None]:
    """Let no data set be downloaded: an audit asks nobody for what somebody else's run names."""
    token = _FETCHES.set(False)
    try:
        yield
    finally:
        _FETCHES.reset(token)


def fetches() -> bool:
    """Tell whether a data set that is not there may be downloaded."""
    return _FETCHES.get()


@cache
def _install() -> None:
    sys.addaudithook(_hook)  # for good: a hook cannot be taken away


def _hook(event: str, _: tuple[Any, ...]) -> None:
    # Every unpickler of the standard library raises it before it looks a name up (Python's table
    # of audit events); torch's with weights only does not, and finds listed classes alone.
    if event == "pickle.find_class" and _GUARDED.get():
        raise RawRefused(None, "it is a pickle that names code, which loading would run")
