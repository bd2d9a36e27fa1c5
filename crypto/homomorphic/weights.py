"""Integer weights that no receiver can read a single client from (O10).

Row i says how much of each client enters client i's combination. Weights are integers with one
public total W per row, so that combinations are exact (`crypto.homomorphic.weighted`). Receiver i
knows its own vector and takes it off, so the rule is about what is left: with the others' shares
b_j = a_ij / (1 - a_ii),

    effective group   1 / sum b_j^2 >= minimum      at least `minimum` others, were they equal
    cap               max b_j <= cap                no other makes up most of what is left

A row with no others at all is allowed: its receiver learns nothing that it did not have.

`flatten` brings real weights to the nearest integers and, where a row breaks the rule, to the
nearest that keep it. The aggregator has its output and shows it to the witness; the noise of opened
rows tells the key authority how alike two rows are, and clients may compare theirs. What the real
weights were computed from is not hidden by them: of weights exp(tau S) over their sum, as FED-PUB
takes them, whoever reads the integers has the cosines S roughly, and whoever opened the cosines has
the integers, since `flatten` draws nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange

__all__ = ["CAP", "MINIMUM", "TOTAL", "Weights", "flatten"]

MINIMUM: Final = 3
"""The smallest effective group of others (O10)."""

CAP: Final = Fraction(1, 2)
"""The largest share of one other among the others."""

TOTAL: Final = 128
"""W, the default total of a row: `crypto.homomorphic.weighted` is exact for every row of it."""

_MAX_TOTAL: Final = 1 << 12
_MAX_CLIENTS: Final = 1024
_TOLERANCE: Final = 1e-6
_HALVINGS: Final = 40

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class _Rule:
    """When a row's others, integers of shape (n,), may be combined."""

    minimum: int
    cap: Fraction

    def admits(self, others: Integers) -> bool:
        """Say whether weights of others keep group and cap; exact, in integers."""
        total, largest = int(others.sum()), int(others.max(initial=0))
        group = self.minimum * int(others @ others) <= total * total
        return group and largest * self.cap.denominator <= total * self.cap.numerator

    def even(self, total: int, count: int) -> Integers:
        """Return `total` spread over `count` as evenly as integers allow: kept if anything is."""
        base, rest = divmod(total, count)
        return np.array([base + (j < rest) for j in range(count)], dtype=np.int64)

    def possible(self, wanted: int, count: int, limit: int) -> int:
        """Return the total of others nearest to `wanted` that `count` clients can carry.

        0 always can; at equal distance the smaller one is taken.
        """
        near = sorted(range(limit + 1), key=lambda total: (abs(total - wanted), total))
        return next(total for total in near if self.admits(self.even(total, count)))


@dataclass(frozen=True, eq=False)
class Weights:
    """A checked table of integer weights; row i is what client i receives.

    Attributes:
        table: shape (K, K), not negative, every row with sum `total`.
        total: W, a power of two.
        minimum: the effective group that every row's others keep.
        cap: the largest share of one other among the others.
        flattened: the rows that had to be changed beyond rounding, for ledger and report.
    """

    table: Integers = field(repr=False)
    total: int
    minimum: int = MINIMUM
    cap: Fraction = CAP
    flattened: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raise OutOfRange for any row that breaks the rule: nothing unchecked is combined."""
        _check_total(self.total)
        table = np.asarray(self.table)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or table.dtype.kind not in "iu":
            raise OutOfRange("A square table of integer weights is expected.")
        if (table < 0).any() or (table > self.total).any():
            raise OutOfRange("A weight lies between 0 and the total of its row.")
        if (table.sum(axis=1) != self.total).any():
            raise OutOfRange("Every row of weights has the public total.")
        rule = _rule(self.minimum, self.cap)
        if not all(rule.admits(np.delete(row, i)) for i, row in enumerate(table.astype(np.int64))):
            raise OutOfRange("A row of weights rests on too few others; flatten it first.")
        table = table.astype(np.int64)  # a copy
        table.flags.writeable = False
        object.__setattr__(self, "table", table)

    @property
    def clients(self) -> int:
        """K."""
        return len(self.table)


def flatten(
    weights: NDArray[np.floating[Any]],
    minimum: int = MINIMUM,
    *,
    total: int = TOTAL,
    cap: Fraction = CAP,
    top: int | None = None,
) -> Weights:
    """Return the admissible integer weights nearest to real ones of shape (K, K).

    A row is rounded by largest remainders. Where that breaks the rule, the receiver's own weight
    stays (unless its others' total cannot be carried by integers that keep the rule; then it moves
    as little as that needs), and the others move to the nearest admissible weights: along the path
    of the exact projection in the reals, and from there until no move of one unit between two
    others brings them nearer. What is admissible is only rounded; a second call changes nothing,
    unless a tie stood at `top`.

    Args:
        weights: rows not negative with sum 1 (to 1e-6); the receiver's own share on the diagonal.
        minimum: the effective group of others, at least 1.
        total: W, a power of two up to 4096.
        cap: the largest share of one other among the others, above 0 and at most 1.
        top: keep only that many others per row, the largest, before anything else; more than
            `minimum`. What weighs as much as the last of them stays too, so that a row whose others
            weigh alike is not cut. None keeps all.

    Raises:
        OutOfRange: rows that are no distributions, a `top` that leaves no choice, or fewer clients
            than a receiver and `minimum` others.
    """
    rule = _rule(minimum, cap)
    _check_total(total)
    shares = _distributions(weights)
    count = len(shares)
    if top is not None and top <= minimum:
        raise OutOfRange("More others than the minimum group must stay, or all weights are forced.")
    if count - 1 < minimum:
        raise OutOfRange("There are fewer others than the smallest effective group; add clients.")
    table = np.zeros((count, count), dtype=np.int64)
    flattened = []
    for i, row in enumerate(shares):
        others = _support(row, i, top)
        # In one order for all receivers: rows that are alike become the same integers, unless
        # `top` cuts or the rule changes them, and do not tell two receivers who compare them one
        # client's share.
        places = np.sort(np.append(others, i))
        table[i, places] = _rounded(row[places] / row[places].sum(), total)
        if not rule.admits(table[i, others]):
            flattened.append(i)
            carried = int(table[i, others].sum())
            table[i, np.append(others, i)] = _nearest(row[others], carried, total, rule)
    return Weights(table, total, minimum, cap, tuple(flattened))


def _rule(minimum: int, cap: Fraction) -> _Rule:
    if minimum < 1 or not 0 < cap <= 1:
        raise OutOfRange("A group has at least one member and a cap lies above 0 and at most at 1.")
    return _Rule(minimum, Fraction(cap))


def _check_total(total: int) -> None:
    if not 2 <= total <= _MAX_TOTAL or total & (total - 1):
        raise OutOfRange("The total of a row is a power of two up to 4096.")


def _distributions(weights: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    shares = np.asarray(weights, dtype=np.float64)
    if shares.ndim != 2 or shares.shape[0] != shares.shape[1] or len(shares) > _MAX_CLIENTS:
        raise OutOfRange("A square table of weights, one row per receiver, is expected.")
    if not np.isfinite(shares).all() or (shares < 0).any():
        raise OutOfRange("Weights are finite and not negative.")
    if (np.abs(shares.sum(axis=1) - 1) > _TOLERANCE).any():
        raise OutOfRange("Every row of weights has sum 1.")
    return shares


def _support(row: NDArray[np.float64], own: int, top: int | None) -> NDArray[np.intp]:
    """Return the others that may enter a row, ascending: the `top` largest and ties, or all."""
    others = np.delete(np.arange(row.size), own)
    if top is None or top >= others.size:
        return others
    # A tie broken by index would cut rows that are alike at different clients, and leave two
    # receivers one client's share.
    kept: NDArray[np.intp] = others[row[others] >= np.sort(row[others])[-top]]
    return kept


def _rounded(shares: NDArray[np.float64], total: int) -> Integers:
    """Return integers with sum `total` nearest to total x shares; ties go to the lower index."""
    exact = shares * total
    whole = np.floor(exact).astype(np.int64)
    largest = np.argsort(whole - exact, kind="stable")
    missing = total - int(whole.sum())
    # A sum of floats just above 1 leaves one unit too many: the smallest remainder gives it back.
    chosen, step = (largest[:missing], 1) if missing >= 0 else (largest[missing:], -1)
    whole[chosen] += step
    return whole


def _nearest(others: NDArray[np.float64], wanted: int, total: int, rule: _Rule) -> Integers:
    """Return a whole row, others first and the receiver last, whose others keep the rule."""
    carried = rule.possible(wanted, others.size, total)
    if not carried:
        return np.append(np.zeros(others.size, dtype=np.int64), total)
    target = carried * others / others.sum()
    best = rule.even(carried, others.size)  # keeps the rule, and is the far end of the path
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        tried = _clipped(middle * target, carried, rule.cap)
        if rule.admits(tried):
            low, best = middle, tried
        else:
            high = middle
    return np.append(_settled(best, target, rule), total - carried)


def _clipped(scaled: NDArray[np.float64], total: int, cap: Fraction) -> Integers:
    """Return integers with sum `total` nearest to `scaled` plus one shift, within 0 … cap total."""
    top = float(total * cap)
    low, high = -float(scaled.max()), float(total)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.clip(scaled + middle, 0, top).sum() < total else (low, middle)
        )
    clipped = np.clip(scaled + high, 0, top)
    return _rounded(clipped / clipped.sum(), total)


def _settled(start: Integers, target: NDArray[np.float64], rule: _Rule) -> Integers:
    """Move single units while that brings admissible weights nearer; the best move each time."""
    weights = start.copy()
    while True:
        beyond = weights - target
        # One unit from j to k changes the squared distance by 2 (beyond_k - beyond_j + 1).
        gain = beyond[:, np.newaxis] - beyond[np.newaxis, :] - 1
        gain[weights == 0, :] = -1
        np.fill_diagonal(gain, -1)
        for place in np.argsort(-gain, axis=None, kind="stable"):
            giver, taker = divmod(int(place), weights.size)
            if gain[giver, taker] <= _TOLERANCE:
                return weights
            moved = weights.copy()
            moved[giver] -= 1
            moved[taker] += 1
            if rule.admits(moved):
                weights = moved
                break
