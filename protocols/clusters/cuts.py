"""Cuts of a cluster in two: which rule makes them, and which of them may happen.

Weights are whole numbers, 1 + cosine in steps of 2^-14, as the key authority opens them; what a
client is to itself plays no part. Rows are sorted by what stands in them before a cut is sought, so
that names decide nothing but ties between clients whose rows hold the very same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from protocols.clusters.agglomerative import agglomerative
from protocols.clusters.normalised import normalised
from protocols.clusters.stoer_wagner import stoer_wagner

__all__ = ["CUTS", "GUARDS", "Cut", "CutGuard", "CutRule", "cut_in_two", "weighed"]

CutRule = Literal["stoer_wagner", "normalised", "agglomerative"]
"""Which cut is sought."""
CutGuard = Literal["constrained", "whole", "leave"]
"""What keeps a side from being too small: only large sides are sought; a cut with a small side does
not happen; the small side leaves the run (Unsafe: the totals before and after differ by it)."""
CUTS, GUARDS = get_args(CutRule), get_args(CutGuard)

Weights = npt.NDArray[np.int64]
Side = npt.NDArray[np.bool_]
_LEVELS = 1 << 14

_RULES: Mapping[str, Callable[[Weights, int], Side | None]] = {
    "stoer_wagner": stoer_wagner,
    "normalised": normalised,
    "agglomerative": agglomerative,
}


@dataclass(frozen=True)
class Cut:
    """One cut of one cluster.

    Attributes:
        round, exchange: where the cosines were opened that it rests on.
        members: of the cluster, sorted.
        side: its smaller side, sorted; the rest is the other.
        leaves: the side is too small and leaves the run.
        signature: of who vouches for the cut; empty where nobody does.
    """

    round: int
    exchange: int
    members: tuple[str, ...]
    side: tuple[str, ...]
    leaves: bool = False
    signature: bytes = b""

    @property
    def rest(self) -> tuple[str, ...]:
        """The other side."""
        return tuple(name for name in self.members if name not in set(self.side))


def weighed(cosines: npt.NDArray[np.float64]) -> Weights:
    """Return the weights of a matrix of cosines: 1 + cosine in steps of 2^-14.

    What is no number counts as opposite: a `measure` in clear makes it of numbers too large.
    """
    numbers = np.where(np.isnan(cosines), -1.0, cosines)
    levels = np.rint(np.clip(numbers, -1.0, 1.0) * _LEVELS).astype(np.int64)
    found: Weights = levels + _LEVELS
    return found


def cut_in_two(weights: Weights, rule: CutRule, guard: CutGuard, least: int) -> Side | None:
    """Return who is on the smaller side of the cut, row by row; None if no cut may happen.

    Args:
        weights: (K, K), symmetric, not negative; the diagonal is ignored.
        rule: which cut is sought.
        guard: what happens to a small side. Under `leave` the side that is returned may hold fewer
            than `least`; the other never does.
        least: clients of the smallest cohort.
    """
    count = len(weights)
    if count < 2 or (guard != "leave" and count < 2 * least):
        return None
    place = sorted(range(count), key=lambda i: _profile(weights, i))
    rows: Weights = weights[np.ix_(place, place)].astype(np.int64)
    np.fill_diagonal(rows, 0)
    found = _RULES[rule](rows, least if guard == "constrained" else 1)
    if found is None:
        return None
    side = np.zeros(count, dtype=np.bool_)
    side[np.asarray(place)[found]] = True
    few = int(side.sum())
    if 2 * few > count or (2 * few == count and side[place[0]]):
        side, few = ~side, count - few
    if count - few < least or (few < least and guard != "leave"):
        return None
    return side


def _profile(weights: Weights, row: int) -> tuple[int, ...]:
    """Return what stands in a row, whatever the order of the clients."""
    others = np.sort(np.delete(weights[row], row))
    return (int(others.sum()), *others.tolist())
