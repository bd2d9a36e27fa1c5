"""How a cluster of clients is cut in two by likeness, the same at every party (ADR 0043)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from crypto.signing import canonical

# --- The cut of average linkage (Sokal and Michener, 1958), on 1 - cosine as the distance ---

Weights = npt.NDArray[np.int64]
Side = npt.NDArray[np.bool_]
_FARTHEST = 1 << 15  # two opposite directions, in steps of 2^-14


def agglomerative(weights: Weights, least: int) -> Side | None:
    """Return a branch of the tree that splits off highest and fits; None if none does.

    Args:
        weights: (K, K), symmetric, not negative, zeros on the diagonal; K at least 2.
        least: clients of either side at least.
    """
    from scipy.cluster.hierarchy import linkage

    count = len(weights)
    upper = np.triu_indices(count, 1)
    tree = linkage((_FARTHEST - weights[upper]).astype(np.float64), "average")
    leaves: list[Side] = [np.eye(count, dtype=np.bool_)[row] for row in range(count)]
    for one, other in tree[:, :2].astype(int):
        leaves.append(leaves[one] | leaves[other])
    for node in tree[::-1, :2].astype(int):
        for branch in node:
            if least <= int(leaves[branch].sum()) <= count - least:
                found: Side = leaves[int(branch)]
                return found
    return None


# --- How a cluster came from all clients, cut by cut, as every Ask of it says (O5) ---
#
# Sets of clients are whole numbers: bit i is client i of the roster. A cut on the wire is the round
# and exchange of the cosines that it rests on, one of its sides, and the signature of who vouches
# for it; what it cuts is known from the cuts before it.

SIGNATURE = 64
_NUMBER = 4  # bytes of a round, and of an exchange


@dataclass(frozen=True)
class Told:
    """One cut, as it is told.

    Attributes:
        round, exchange: of the cosines that it rests on.
        cluster: that it cuts.
        side: one of its sides.
        signature: of who vouches for it.
    """

    round: int
    exchange: int
    cluster: int
    side: int
    signature: bytes

    @property
    def rest(self) -> int:
        """The other side."""
        return self.cluster & ~self.side

    def text(self, run: str, plan: str) -> bytes:
        """Return what is signed of it."""
        sets = [f"{self.cluster:x}", f"{self.side:x}"]
        return canonical([run, plan, self.round, self.exchange, *sets])


def _size(clients: int) -> int:
    return 2 * _NUMBER + -(-clients // 8) + SIGNATURE


def cuts_bytes(clients: int, cuts: int) -> int:
    """Return the size of a way of so many cuts to a cluster; room for one at least."""
    return _size(clients) * max(1, cuts)


def packed(cuts: Sequence[Told], clients: int) -> bytes:
    """Return cuts as bytes, from the first on."""
    return b"".join(
        cut.round.to_bytes(_NUMBER, "little")
        + cut.exchange.to_bytes(_NUMBER, "little")
        + cut.side.to_bytes(-(-clients // 8), "little")
        + (cut.signature or bytes(SIGNATURE))
        for cut in cuts
    )


def unpacked(data: bytes, clients: int, cluster: int) -> list[Told]:
    """Return the cuts that lead from all clients towards a cluster.

    Raises:
        ValueError: a cut has no second side, or has the cluster on both.
    """
    size, here, found = _size(clients), (1 << clients) - 1, list[Told]()
    for start in range(0, len(data.rstrip(b"\0")), size):
        entry = data[start : start + size].ljust(size, b"\0")
        round, exchange = (
            int.from_bytes(entry[at : at + _NUMBER], "little") for at in (0, _NUMBER)
        )
        side = int.from_bytes(entry[2 * _NUMBER : size - SIGNATURE], "little")
        cut = Told(round, exchange, here, side, entry[size - SIGNATURE :])
        if not side or side & ~here or side == here:
            raise ValueError("a cut has one side only, or clients that were not in the cluster")
        sides = [one for one in (side, cut.rest) if cluster & ~one == 0]
        if len(sides) != 1:
            raise ValueError("a cut goes through the cluster that is said to come of it")
        found.append(cut)
        here = sides[0]
    if here != cluster:
        raise ValueError("the cuts do not lead to the cluster that is asked")
    return found


# --- The normalised cut: Shi and Malik, "Normalized cuts and image segmentation" (PAMI 22, 2000)
# ---
#
# Clients are put in the order of the second eigenvector of D^-1/2 W D^-1/2, and of all places where
# that order can be cut the one with the smallest cut(A, B) (1 / vol A + 1 / vol B) is taken,
# compared as exact fractions; which sign the vector has plays no part.


def normalised(weights: Weights, least: int) -> Side | None:
    """Return one side of the normalised cut, the first of several; None if none fits.

    Args:
        weights: (K, K), symmetric, not negative, zeros on the diagonal; K at least 2.
        least: clients of either side at least.
    """
    count = len(weights)
    degrees = weights.sum(axis=1)
    scale = 1.0 / np.sqrt(np.maximum(degrees, 1))
    second = np.linalg.eigh(weights * np.outer(scale, scale))[1][:, -2] * scale
    # Rounded, so that what is equal but for the last bits keeps the order of the rows.
    rounded = np.round(second / max(float(np.abs(second).max()), 1e-300), 9)
    order = np.argsort(rounded, kind="stable")
    rows, volumes = weights[np.ix_(order, order)], np.cumsum(degrees[order])
    best: tuple[Fraction, int] | None = None
    for place in range(least, count - least + 1):
        here, all_of_it = int(volumes[place - 1]), int(volumes[-1])
        product = here * (all_of_it - here)
        between = int(rows[:place, place:].sum())
        cost = Fraction(between, product) if product else Fraction(0)
        if best is None or cost < best[0]:
            best = cost, place
    if best is None:
        return None
    side = np.zeros(count, dtype=np.bool_)
    side[order[: best[1]]] = True
    return side


# --- The lightest cut: Stoer and Wagner, "A simple min-cut algorithm" (JACM 44, 1997) ---
#
# Its phases give the lightest of all cuts exactly. Where both sides must be large, the lightest of
# all cuts that fit is sought among all of them up to `EXACT` clients; beyond that among the cuts of
# the phases alone, of which none may fit although some cut does.

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


# --- Cuts of a cluster in two: which rule makes them, and which of them may happen ---
#
# Weights are whole numbers, 1 + cosine in steps of 2^-14, as the key authority opens them; what a
# client is to itself plays no part. Rows are sorted by what stands in them before a cut is sought,
# so that names decide nothing but ties between clients whose rows hold the very same numbers.

CutRule = Literal["stoer_wagner", "normalised", "agglomerative"]
"""Which cut is sought."""
CutGuard = Literal["constrained", "whole", "leave"]
"""What keeps a side from being too small: only large sides are sought; a cut with a small side does
not happen; the small side leaves the run (Unsafe: the totals before and after differ by it)."""
CUTS, GUARDS = get_args(CutRule), get_args(CutGuard)


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
