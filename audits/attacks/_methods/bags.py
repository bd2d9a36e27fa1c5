"""Reading one bag of words out of a sum of a few.

What a trap brings back is a sum over few records, each times a factor of its own. A record's words
all have one value in it, unless another of these records has the word too: then the two values are
added. So the values of a column stand on few levels, and what is the sum of two or three levels is
no level. Whoever knows some words of a record knows its level, and with it the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from audits.attacks._shared.material import Array

__all__ = ["read_words"]

Numbers = npt.NDArray[np.int64]

_FEWEST = 4  # words on a level that is taken for a record's
_MOST = 12  # levels of which sums are tried: those with the most words
_SLACK = 1.5  # of a sum of levels, in tolerances
_SILENT, _UNEXPLAINED = 6, 4  # what a known word costs a level that it does not fit


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
        return _SILENT
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
