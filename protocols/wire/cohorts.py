"""What follows from the names of a cohort, kept by the tuple that holds them.

A cohort of thousands of names is looked up a dozen times for every envelope of a sum. To find it
by its value, all its names are hashed each time; here it is found by which tuple it is, which takes
as long for six thousand as for six. A tuple of texts never changes, and a party that decodes one
cohort twice gets one tuple (`Roster.unmask`), so a party by itself finds its cohort here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
V = TypeVar("V")
_MOST = 64


def by_names(
    function: Callable[Concatenate[tuple[str, ...], P], V],
) -> Callable[Concatenate[tuple[str, ...], P], V]:
    """Keep what a function of a tuple of names, and of hashable values, returned of late."""
    known: dict[Any, tuple[tuple[str, ...], V]] = {}

    @wraps(function)
    def kept(names: tuple[str, ...], /, *rest: P.args, **named: P.kwargs) -> V:
        place = (id(names), *rest, *named.items()) if rest or named else id(names)
        found = known.get(place)
        if found is not None:
            return found[1]
        value = function(names, *rest, **named)
        if len(known) >= _MOST:
            known.clear()  # one step for threads, unlike dropping the oldest
        known[place] = (names, value)  # held, so that its id stays its own
        return value

    return kept


@by_names
@lru_cache(maxsize=16)
def as_set(names: tuple[str, ...]) -> frozenset[str]:
    """Return a cohort as the one set that all of a process hold."""
    return frozenset(names)


@by_names
def within(names: tuple[str, ...], others: frozenset[str]) -> bool:
    """Tell whether all of a cohort are among others."""
    return others.issuperset(names)


def shared(names: Iterable[str]) -> tuple[str, ...]:
    """Return these names as the one tuple that all of a process hold: n clients name n clients."""
    return _shared(tuple(names))


@lru_cache(maxsize=16)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    return names
