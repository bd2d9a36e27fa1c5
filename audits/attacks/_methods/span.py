"""How much of a candidate's features lies in what a first layer's change is made of; see A05."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from audits.attacks._shared.material import Answer, Array

Rows = npt.NDArray[np.float32]
"""Feature vectors of candidates, (n, features)."""

Pair = tuple[Array, Array]
"""Scores of members and of outsiders."""

_RANK = 1e-6  # of the largest singular value; what is below is rounding
_SILENT = 0.01  # of a strong feature's movement; below it, a feature did not move
_LOUD = 0.9  # quantile of the features' movements that counts as strong
_BALANCE = 0.05  # of a strong feature's movement; weaker features are not scaled up fully
_TINY = 1e-3  # share of a vector inside a span below which more or less says nothing


class Span:
    """The span of one change of the first layer, and the scores of candidates against it.

    Args:
        moved: change of the weight, (features, hidden).
        given: the weight that was given out, (features, hidden).
        optimiser: ``sgd``, ``adamw``, ``adam`` or empty, for unknown. Adam's steps are nearly
            signs, so which features moved says more than how much.
    """

    def __init__(self, moved: Array, given: Array, *, optimiser: str) -> None:
        clean = moved - _decay(moved, given) * given
        self._length = np.linalg.norm(clean, axis=1)
        strong = float(np.quantile(self._length, _LOUD)) or float(self._length.max())
        self.empty = not strong > 0.0
        if self.empty:
            return
        self._log = np.log(self._length / strong + _SILENT)
        self._scale = np.hypot(self._length, _BALANCE * strong)
        self._basis = _basis(clean)
        self._balanced = _basis(clean / self._scale[:, None])
        self._weight = 0.3 if optimiser == "sgd" else 1.0

    def scores(self, x: Array | Rows) -> Array:
        """Return how likely each candidate took part; only the order means something.

        Args:
            x: features, (n, features).
        """
        if self.empty:
            return np.zeros(len(x))
        inside = np.log(_share(x, self._basis) + _TINY)
        balanced = np.log(_share(x, self._balanced) + _TINY)
        size = np.abs(x).sum(axis=1)
        moved = np.abs(x) @ self._log / np.where(size > 0, size, 1.0)
        found: Array = inside + balanced + self._weight * moved
        return found


def _decay(moved: Array, given: Array) -> float:
    """Return the factor that weights which no data touched have in common; the median finds it."""
    used = np.abs(given) > 1e-3 * np.abs(given).max(initial=0.0)
    return float(np.median(moved[used] / given[used])) if used.any() else 0.0


def _basis(matrix: Array) -> Array:
    """Return orthonormal columns, (features, k), that span a matrix's strong directions."""
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    rank = int((values > _RANK * values[0]).sum())
    kept: Array = left[:, : max(min(rank, matrix.shape[0] // 2), 1)]
    return kept


def _share(x: Array | Rows, basis: Array) -> Array:
    """Return how much of each vector's square lies in a span, in [0, 1]."""
    square = np.einsum("nf,nf->n", x, x)
    inside = x @ basis
    share: Array = np.einsum("nk,nk->n", inside, inside) / np.where(square > 0, square, 1.0)
    return share


def rows_of(rows: Rows | None) -> frozenset[bytes]:
    """Return the bytes of each row; of None, nothing."""
    if rows is None:
        return frozenset()
    return frozenset(row.tobytes() for row in np.ascontiguousarray(rows, dtype=np.float32))


def standard(members: Array, outsiders: Array) -> Pair:
    """Return scores relative to the middle and spread of all candidates, as an attacker could."""
    pool = np.concatenate([members, outsiders])
    middle = float(np.median(pool))
    spread = float(np.median(np.abs(pool - middle))) or 1.0
    return (members - middle) / spread, (outsiders - middle) / spread


# --- Reading one bag of words out of a sum of a few ---
#
# What a trap brings back is a sum over few records, each times a factor of its own. A record's
# words all have one value in it, unless another of these records has the word too: then the two
# values are added. So the values of a column stand on few levels, and what is the sum of two or
# three levels is no level. Whoever knows some words of a record knows its level, and with it the
# others.

Numbers = npt.NDArray[np.int64]

_FEWEST = 4  # words on a level that is taken for a record's
_MOST = 12  # levels of which sums are tried: those with the most words
_SLACK = 1.5  # of a sum of levels, in tolerances
_SILENT_BAGS, _UNEXPLAINED = 6, 4  # what a known word costs a level that it does not fit


@dataclass(frozen=True, repr=False)
class _Level:
    value: float
    words: Numbers


def read_words(column: Array, known: Numbers, tolerance: float) -> Numbers | None:
    """Return the words of the record that has some known words, ascending; None: it is not there.

    Args:
        column: (F,), what was read for every word.
        known: (k,), words that it has.
        tolerance: how far apart two values on one level may be; below it is nothing.
    """
    levels = _levels(column, tolerance)
    own = _own(column, known, levels, tolerance)
    if own is None:
        return None
    atoms, words = [levels[own]], [known, levels[own].words]
    for place in sorted(range(len(levels)), key=lambda n: abs(levels[n].value)):
        if place == own:
            continue
        sums = _explained(levels[place].value, atoms, tolerance)
        if not sums:
            atoms.append(levels[place])
        elif 2 * sum(sums) >= len(sums):  # most of the sums that fit have the record in them
            words.append(levels[place].words)
    return np.unique(np.concatenate(words))


def _levels(column: Array, tolerance: float) -> list[_Level]:
    """Return the levels on which words stand, by value."""
    there = np.flatnonzero(np.abs(column) > tolerance)
    there = there[np.argsort(column[there], kind="stable")]
    if not there.size:
        return []
    cuts = np.flatnonzero(np.diff(column[there]) > tolerance) + 1
    return [_Level(float(column[words].mean()), words) for words in np.split(there, cuts)]


def _own(column: Array, known: Numbers, levels: Sequence[_Level], tolerance: float) -> int | None:
    """Return which level is the record's: the one that explains its known words most simply."""
    values = np.array([level.value for level in levels])
    large = sorted(levels, key=lambda level: -level.words.size)[:_MOST]
    pairs = np.array([a.value + b.value for a, b in combinations(large, 2)])
    best: tuple[tuple[int, int], int] | None = None
    for place, level in enumerate(levels):
        if level.words.size < _FEWEST:
            continue
        others = np.delete(values, place)
        cost = sum(_cost(column[w], level.value, others, pairs, tolerance) for w in known)
        key = (-cost, level.words.size)
        if cost < _UNEXPLAINED * known.size and (best is None or key > best[0]):
            best = key, place
    return None if best is None else best[1]


def _cost(value: float, level: float, others: Array, pairs: Array, tolerance: float) -> int:
    """Return how little a known word's value speaks for a level; 0: it stands on it."""
    rest = value - level
    if abs(rest) <= tolerance:
        return 0
    if abs(value) <= tolerance:
        return _SILENT_BAGS
    for cost, sums in ((1, others), (2, pairs)):
        if np.any(np.abs(sums - rest) <= _SLACK * tolerance):
            return cost
    return _UNEXPLAINED


def _explained(value: float, atoms: Sequence[_Level], tolerance: float) -> list[bool]:
    """Return, for each sum of few levels that gives a value, whether the first level is in it."""
    large = [atoms[0], *sorted(atoms[1:], key=lambda level: -level.words.size)[: _MOST - 1]]
    values = np.array([level.value for level in large])
    for size in (2, 3):
        chosen = _chosen(len(large), size)
        fits = np.abs(values[chosen].sum(axis=1) - value) <= _SLACK * tolerance
        if fits.any():
            return [bool(first == 0) for first in chosen[fits, 0]]
    return []


@cache
def _chosen(count: int, size: int) -> Numbers:
    """Return every choice of so many of `count` numbers, ascending, (n, size)."""
    return np.array(list(combinations(range(count), size)), dtype=np.int64).reshape(-1, size)


# --- Solving a generator's last layer for the rows that its draws were held against ---
#
# The gradient of the last layer is G = A^T D, A (B, h + 1) what entered it and a one, known to
# whoever knows the generator and its codes, D (B, F) the slopes at its outputs. With B <= h + 1
# draws D is solved for exactly. For x~ = tanh(.) and a squared distance, row b of D is a positive
# multiple of (x~_b - x_u)(1 - x~_b^2), so it names u whatever a clip made of its length.

_SMALL = 1e-12


def solved(entered: Array, gradient: Array) -> Array:
    """Return the slopes at the outputs, (B, F): the shortest of all that give this gradient."""
    found: Array = np.linalg.lstsq(entered.T, gradient, rcond=None)[0].astype(np.float64)
    return found


def named(answer: Answer, gradient: Array, candidates: Array) -> float:
    """Return for how many draws the slopes of a gradient name the row that they were held against.

    Args:
        answer: what is known, and the truth.
        gradient: (h + 1, F), of any message.
        candidates: (N, F).
    """
    slopes, right = solved(answer.entered, gradient), []
    for place in np.flatnonzero(answer.matched >= 0):
        drawn = answer.drawn[place]
        towards = (drawn - candidates) * (1.0 - drawn**2)
        length = np.linalg.norm(towards, axis=1) * np.linalg.norm(slopes[place])
        best = int(np.argmax(towards @ slopes[place] / np.maximum(length, _SMALL)))
        right.append(_same(candidates, best, int(answer.matched[place])))
    return float(np.mean(right)) if right else 0.0


def guessed(answer: Answer, candidates: Array) -> float:
    """Return the same for who names the row nearest to each draw, without any message."""
    right = []
    for place in np.flatnonzero(answer.matched >= 0):
        away = np.square(answer.drawn[place] - candidates).sum(axis=1)
        right.append(_same(candidates, int(np.argmin(away)), int(answer.matched[place])))
    return float(np.mean(right)) if right else 0.0


def _same(candidates: Array, one: int, other: int) -> bool:
    return one == other or bool(np.array_equal(candidates[one], candidates[other]))
