"""The lightest cut: Stoer and Wagner, "A simple min-cut algorithm" (JACM 44, 1997).

Its phases give the lightest of all cuts exactly. Where both sides must be large, the lightest of
all cuts that fit is sought among all of them up to `EXACT` clients; beyond that among the cuts of
the phases alone, of which none may fit although some cut does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.int64]
Side = npt.NDArray[np.bool_]

EXACT = 16
"""Up to so many clients every cut is looked at: 2^15 of them."""


def stoer_wagner(weights: Weights, least: int) -> Side | None:
    """Return one side of the lightest cut, the first of several; None if none fits.

    Args:
        weights: (K, K), symmetric, not negative, zeros on the diagonal; K at least 2.
        least: clients of either side at least.
    """
    count = len(weights)
    every = least > 1 and count <= EXACT
    best: tuple[int, Side] | None = None
    for weight, side in _all_cuts(weights, least) if every else _phases(weights):
        large = least <= int(side.sum()) <= count - least
        if large and (best is None or weight < best[0]):
            best = weight, side
    return best[1] if best is not None else None


def _phases(weights: Weights) -> Iterator[tuple[int, Side]]:
    """Return the cut of every phase and its weight."""
    rows, members = weights.copy(), np.eye(len(weights), dtype=np.bool_)
    alive = list(range(len(weights)))
    while len(alive) > 1:
        rest = rows[np.ix_(alive, alive)]
        bound = rest[0].copy()  # by how much each vertex is bound to those that were taken
        free = np.ones(len(alive), dtype=np.bool_)
        free[0] = False
        last = before = 0
        for _ in alive[1:]:
            before, last = last, int(np.argmax(np.where(free, bound, -1)))
            free[last] = False
            weight = int(bound[last])
            bound += rest[last]
        one, other = alive[before], alive[last]
        yield weight, members[other].copy()
        rows[one] += rows[other]
        rows[:, one] += rows[:, other]
        rows[one, one] = 0
        members[one] |= members[other]
        alive.remove(other)


def _all_cuts(weights: Weights, least: int) -> Iterator[tuple[int, Side]]:
    """Return the lightest of all cuts with large sides, if there is one."""
    count = len(weights)
    numbers = np.arange(1 << (count - 1))  # the last row is never in it: each cut stands once
    inside = (numbers[:, None] >> np.arange(count) & 1).astype(np.int64)
    sizes = inside.sum(axis=1)
    inside = inside[(sizes >= least) & (sizes <= count - least)]
    if len(inside):
        cost = ((inside @ weights) * (1 - inside)).sum(axis=1)
        best = int(np.argmin(cost))
        yield int(cost[best]), inside[best].astype(np.bool_)
