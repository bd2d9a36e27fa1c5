"""Sequences of norms, and how alike two of them are: what GCFL+ cuts clusters by.

Dynamic time warping (Sakoe and Chiba, 1978) without a window: the square root of the least sum of
squared differences over all monotone alignments of two sequences. Sequences have a few entries
each, so its table is filled here, row by row, and for many second sequences at once.

A client must not show its sequence, and products of all pairs of entries, of which warping could be
computed, would show it. So a client says how far its sequence is from public ones (`to_pivots`), or
the sequence itself, standardised, for cosines that are correlations (`standardised`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from protocols.messages import Array

__all__ = [
    "PIVOTS",
    "Pivots",
    "directed",
    "distances",
    "nearness",
    "pivots",
    "scaled",
    "standardised",
    "to_pivots",
    "warped",
]

PIVOTS = 32
"""Public sequences that a client compares its own with."""

_STREAM = 7  # of the run's public seed; starting weights come from another


class Pivots(NamedTuple):
    """Public sequences, and what a distance to them is measured by.

    Attributes:
        walks: (m, T), each divided by its standard deviation.
        means: mean distance of the other pivots to each, (m,).
        spreads: standard deviation of these distances, (m,).
    """

    walks: Array
    means: Array
    spreads: Array


def warped(one: Array, others: Array) -> Array:
    """Return the distance by dynamic time warping of one sequence to others.

    Args:
        one: (T,), one entry or more.
        others: (..., U), one entry or more.

    Returns:
        One distance for each of `others`, (...); at most the Euclidean one where T = U.
    """
    cost = (others[..., np.newaxis, :] - one[:, np.newaxis]) ** 2
    *shape, rows, columns = cost.shape
    best = np.full((*shape, rows + 1, columns + 1), np.inf)
    best[..., 0, 0] = 0.0
    for i in range(rows):
        for j in range(columns):
            before = np.minimum(best[..., i, j], best[..., i, j + 1])
            best[..., i + 1, j + 1] = cost[..., i, j] + np.minimum(before, best[..., i + 1, j])
    found: Array = np.sqrt(best[..., rows, columns])
    return found


def distances(rows: Sequence[Array]) -> Array:
    """Return the distances by dynamic time warping of every two sequences, (K, K).

    Args:
        rows: K sequences, each of one entry or more.
    """
    found = np.zeros((len(rows), len(rows)))
    for i, one in enumerate(rows):
        for j in range(i):
            found[i, j] = found[j, i] = warped(one, rows[j])
    return found


def nearness(rows: Array) -> Array:
    """Return 1 for a distance of 0, and -1 for the largest of all distances, (K, K)."""
    between = distances(list(rows))
    found: Array = 1.0 - 2.0 * between / max(float(between.max()), 1e-300)
    return found


def scaled(sequence: Array) -> Array | None:
    """Return a sequence divided by its standard deviation; None for a constant one."""
    sequence = np.asarray(sequence, dtype=np.float64)
    spread = float(sequence.std())
    # Equal numbers may have a deviation of some last bits, and no direction at all.
    if not spread > 1e-12 * float(np.abs(sequence).max(initial=0.0)):
        return None
    return sequence / spread


@lru_cache(maxsize=4)
def pivots(seed: int, length: int) -> Pivots:
    """Return the pivots of a public seed: the same for everyone.

    Args:
        seed: the run's, as `Start` tells it.
        length: entries of a sequence, T.
    """
    rng = np.random.default_rng([seed, _STREAM])
    walks = np.cumsum(rng.standard_normal((PIVOTS, length)), axis=1)
    walks /= walks.std(axis=1, keepdims=True)
    between = distances(list(walks))
    others = between[~np.eye(PIVOTS, dtype=bool)].reshape(PIVOTS, PIVOTS - 1)
    return Pivots(walks, others.mean(axis=1), others.std(axis=1))


def to_pivots(sequence: Array, seed: int) -> Array:
    """Return how far a sequence is from each pivot, in spreads from the pivots' own mean, (m,).

    A constant sequence gives zeros: its cosine with everybody is 0.
    """
    if (own := scaled(sequence)) is None:
        return np.zeros(PIVOTS)
    public = pivots(seed, len(own))
    found: Array = (warped(own, public.walks) - public.means) / public.spreads
    return found


def standardised(sequence: Array) -> Array:
    """Return a sequence with mean 0 and deviation 1, (T,): cosines of two are their correlation.

    A constant sequence gives zeros: its cosine with everybody is 0.
    """
    if (own := scaled(sequence)) is None:
        return np.zeros(len(sequence))
    found: Array = own - own.mean()
    return found


def directed(vector: Array) -> Array:
    """Return a vector with one entry more, which is 1 if all others are zero, and else 0.

    So it always has a direction: that of a vector of zeros is square to that of every other.
    """
    found: Array = np.append(vector, 0.0 if np.any(vector) else 1.0)
    return found
