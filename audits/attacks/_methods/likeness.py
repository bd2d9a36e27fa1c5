"""What a matrix of likenesses tells of the clients behind it: who is like whom, and who is who."""

from __future__ import annotations

from itertools import permutations
from math import factorial

import numpy as np

from audits.attacks._shared.material import Array, Counts

__all__ = ["FEWEST", "closer", "matched", "owners", "triplets"]

FEWEST = 4
"""Clients: of three, one left out leaves nothing to compare."""

_ALL = factorial(7)  # assignments that are tried one by one; beyond, by a search
_STARTS = 16  # of the search
_SLACK = 1e-9


def triplets(true: Array) -> int:
    """Return how many questions there are: of two others, which is more like this client?

    Args:
        true: (K, K), symmetric, how alike the clients' data are; ties ask nothing.
    """
    return int(_asked(true).sum()) // 2


def closer(found: Array, true: Array) -> Array:
    """Return each client's part in the share of such questions that a matrix answers right.

    The mean is that share, which is (1 + Kendall's tau) / 2 of the rows, a tie counting one half.
    A question is about three clients, so scores of clients are not independent. The parts are
    therefore jackknife pseudo-values (Efron and Stein, The Annals of Statistics 1981), whose spread
    holds that dependence, moved so that their mean is the share itself. One may lie outside [0, 1].

    Args:
        found: (K, K), symmetric; the diagonal is not used.
        true: likewise.

    Raises:
        ValueError: some client's absence leaves no question.
    """
    asked, count = _asked(true), len(true)
    ahead = np.sign(found[:, :, None] - found[:, None, :])
    right = (1.0 + ahead * np.sign(true[:, :, None] - true[:, None, :])) / 2.0 * asked
    whole, each = asked.sum(), _with_each(asked)
    if (whole - each).min() <= 0:
        raise ValueError("without one of its clients a matrix asks nothing")
    share = right.sum() / whole
    left = (right.sum() - _with_each(right)) / (whole - each)
    parts: Array = share + (count - 1) * (left.mean() - left)
    return parts


def _asked(true: Array) -> Array:
    """Return 1 for each (client, other, another) whose question has an answer, (K, K, K)."""
    other = ~np.eye(len(true), dtype=bool)
    untied = np.abs(true[:, :, None] - true[:, None, :]) > _SLACK
    found: Array = (untied & other[:, :, None] & other[:, None, :]).astype(np.float64)
    return found


def _with_each(cube: Array) -> Array:
    """Return, per client, the sum over all triplets that it is in, whatever its place."""
    found: Array = cube.sum(axis=(1, 2)) + cube.sum(axis=(0, 2)) + cube.sum(axis=(0, 1))
    return found


def owners(found: Array, true: Array, rng: np.random.Generator) -> Counts:
    """Return, for each client, whose data it holds by the assignment that fits best, (n, K).

    Both matrices are turned into ranks. The fit is the sum of products over all pairs, a quadratic
    assignment: solved by trying everything up to seven clients, beyond that by FAQ (Vogelstein et
    al., PLoS ONE 2015) from several starts. Assignments that fit equally well are all returned.

    Args:
        found: (K, K), symmetric, how alike clients look.
        true: (K, K), how alike the candidates' data are.
        rng: draws the starts, and the names in which a search begins.
    """
    count, seen, known = len(true), _ranks(found), _ranks(true)
    if factorial(count) <= _ALL:
        every = np.array(list(permutations(range(count))))
    else:
        every = np.array([_searched(seen, known, rng) for _ in range(_STARTS)])
    fits = (seen * known[every[:, :, None], every[:, None, :]]).sum(axis=(1, 2))
    best: Counts = every[fits >= fits.max() - _SLACK]
    return best


def _searched(seen: Array, known: Array, rng: np.random.Generator) -> Counts:
    from scipy.optimize import quadratic_assignment

    names = rng.permutation(len(seen))  # a search that begins with the truth may stay there
    result = quadratic_assignment(
        seen,
        known[np.ix_(names, names)],
        options={"maximize": True, "rng": rng, "P0": "randomized"},
    )
    found: Counts = names[result.col_ind]
    return found


def _ranks(matrix: Array) -> Array:
    """Return the ranks of all pairs, their mean zero and their spread one; 0 on the diagonal."""
    from scipy import stats

    places = np.triu_indices(len(matrix), k=1)
    ranks = stats.rankdata(np.round(matrix[places], 9))
    ranked = np.zeros_like(matrix)
    ranked[places] = (ranks - ranks.mean()) / max(float(ranks.std()), _SLACK)
    both: Array = ranked + ranked.T
    return both


def matched(found: Array, true: Array, rng: np.random.Generator) -> Array:
    """Return for each client how often :func:`owners` names its own data, (K,); 0 to 1.

    A matrix in which all are equally alike says nothing: 1/K.
    """
    pairs = found[np.triu_indices(len(found), k=1)]
    if np.ptp(pairs) < _SLACK:
        return np.full(len(found), 1.0 / len(found))
    best = owners(found, true, rng)
    hits: Array = (best == np.arange(len(true))).mean(axis=0)
    return hits
