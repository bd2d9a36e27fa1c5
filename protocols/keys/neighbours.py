"""Who is joined to whom in a group of clients, for all who ask for the same in a process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache

from crypto.graph import neighbourhoods, thinnest_window
from protocols.errors import NotInPlan
from protocols.wire.cohorts import by_names


class Neighbours:
    """Who is joined to whom, for all groups of a process that are of the same clients and seed."""

    def __init__(self, called: tuple[str, ...], degree: int, seed: bytes) -> None:
        self._called, self._degree, self._seed = called, degree, seed
        self.complete = degree >= len(called) - 1
        self.neighbours = self._near(degree)
        self.holders = _with_itself(self.neighbours)
        self.thinnest = by_names(self._thinnest)

    @staticmethod
    def of(rows: Mapping[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
        """Return a client's row; raises NotInPlan for one that was not called."""
        if name not in rows:
            raise NotInPlan("A client that was not called for this epoch's keys is named.")
        return rows[name]

    def voters(self, name: str) -> tuple[str, ...]:
        """Return who holds shares of anybody whose shares `name` holds, sorted."""
        return self.of(self._voters, name)

    @cached_property
    def _voters(self) -> dict[str, tuple[str, ...]]:
        # Neighbours are the nearest on a circle, so theirs are those within twice the distance.
        return _with_itself(self._near(2 * self._degree))

    def _near(self, degree: int) -> dict[str, tuple[str, ...]]:
        """Return who stands within degree/2 of each client on the circle, sorted."""
        called = self._called
        rows = zip(called, neighbourhoods(len(called), degree, self._seed), strict=True)
        return {name: tuple([called[place] for place in row]) for name, row in rows}

    def _thinnest(self, names: tuple[str, ...]) -> int:
        survivors = set(names)
        there = {place for place, name in enumerate(self._called) if name in survivors}
        return thinnest_window(len(self._called), self._degree, self._seed, there)


def _with_itself(near: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(sorted((*row, name))) for name, row in near.items()}


@lru_cache(maxsize=32)  # as many as a run has groups
def graph_of(called: tuple[str, ...], degree: int, seed: bytes) -> Neighbours:
    """Return the graph of these clients; see `crypto.graph.neighbourhoods`."""
    return Neighbours(called, degree, seed)
