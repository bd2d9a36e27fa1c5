"""Names for the places where time goes, so that whoever wants to know can take it there.

These floors know no clock: a listener does, and there is none but in a run that is profiled
(`secure_fgl.run.profile`). Without one a named function costs one comparison more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, ParamSpec, Protocol, TypeVar, get_args

__all__ = ["KINDS", "REST", "Kind", "Listener", "count", "listen", "reached", "spent"]

Kind = Literal[
    "learning", "cryptography", "encoding", "signatures", "ledger", "state", "waiting (disk)",
    "waiting (processes)",
]  # fmt: skip
"""On what a function spends its time."""

REST = "the rest"
KINDS = (*get_args(Kind), REST)
"""All kinds of time; the rest is what has no other name."""

P = ParamSpec("P")
R = TypeVar("R")


class Listener(Protocol):
    """Is told when a named function begins and ends; never of what it works on."""

    def enter(self, kind: str) -> None:
        """A function of this kind begins."""

    def leave(self) -> None:
        """The function that began last has ended."""

    def count(self, what: str, number: int) -> None:
        """So many more of something: bytes that were written, or syncs."""

    def reached(self, round: int) -> None:
        """The run is in this round from now on."""


_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Tell a listener from now on, in place of the one before; None: nobody."""
    global _listener  # noqa: PLW0603 - one process has one clock
    _listener = listener


def count(what: str, number: int = 1) -> None:
    """Count something, if anybody listens."""
    if _listener is not None:
        _listener.count(what, number)


def reached(round: int) -> None:
    """Say in which round the run is, if anybody listens."""
    if _listener is not None:
        _listener.reached(round)


def spent(kind: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Name what a function spends its time on; not for generators, which end before their work."""

    def name(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def named(*arguments: P.args, **options: P.kwargs) -> R:
            listener = _listener
            if listener is None:
                return function(*arguments, **options)
            listener.enter(kind)
            try:
                return function(*arguments, **options)
            finally:
                listener.leave()

        return named

    return name
