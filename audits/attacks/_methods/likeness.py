"""What cosines tell: who is like whom, who is who, and what chosen vectors read of the others."""

from __future__ import annotations

from itertools import permutations
from math import factorial

import numpy as np

from audits.attacks._shared.material import Array, Counts

__all__ = ["FEWEST", "closer", "matched", "owners", "read", "triplets", "unit_rows"]

FEWEST = 4
"""Clients: of three, one left out leaves nothing to compare."""

_ALL = factorial(7)  # assignments that are tried one by one; beyond, by a search
_STARTS = 16  # of the search
_SLACK = 1e-9
_NOTHING = 1e-12  # of squared length
_LOST = 4.0  # squared length is lost in errors below so many times theirs


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


def unit_rows(rows: Array) -> Array:
    """Return the rows, (n, d), each divided by its length; a row of zeros stays."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: Array = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return found


def read(
    vectors: Array, attackers: int, errors: Array, rng: np.random.Generator, *, mirror: bool = False
) -> Array:
    """Return for each client which share of what sets it apart is read in one comparison, (n,).

    For each client so many others are drawn. They would have sent the vectors that they have, whose
    mean t is what they expect of the client. In their place they send orthonormal directions B that
    are orthogonal to t, so that the cosines with them are the client's coordinates along B. Along B
    they guess these, along t the length of t or what is left to a length of 1, elsewhere nothing.
    The share is 1 - |guess - v|^2 / |t - v|^2: about `attackers` of d - 1 parts. Below 0: they
    guess worse than t is. Of who is as near to t as cosines are off they know it and guess t, 0:
    else some clients that are nearly equal would lower the mean below what all others lose.

    Args:
        vectors: (n, d), of length 1; n at least `attackers` + 1, d at least 2.
        attackers: clients that choose their vectors.
        errors: what an opened cosine may be off; one is drawn for each coordinate.
        rng: draws attackers, directions and errors.
        mirror: coordinates have signs drawn at random, as a control.
    """
    count, size = vectors.shape
    found = np.zeros(count)
    for one in range(count):
        rest = rng.permutation(np.delete(np.arange(count), one))
        expected = vectors[rest[:attackers]].mean(axis=0)
        whole = float(np.sum((vectors[one] - expected) ** 2))
        if whole < max(_NOTHING, _LOST * attackers * float(np.mean(errors**2))):
            continue  # nothing sets it apart that cosines so far off would tell: they guess t
        base = _directions(expected, min(attackers, size - 1), rng)
        told = base[1:] @ vectors[one] + rng.choice(errors, size=len(base) - 1)
        if mirror:
            told *= rng.choice([-1.0, 1.0], size=len(told))
        along = np.sqrt(max(0.0, 1.0 - float(told @ told)))
        if len(base) < size:  # else it is known
            along = min(along, float(np.linalg.norm(expected)))
        guess = told @ base[1:] + along * base[0]
        found[one] = 1.0 - float(np.sum((vectors[one] - guess) ** 2)) / whole
    return found


def _directions(expected: Array, count: int, rng: np.random.Generator) -> Array:
    """Return orthonormal rows: along what is expected, then drawn ones, (1 + count, d)."""
    base, triangle = np.linalg.qr(
        np.column_stack([expected, rng.normal(size=(len(expected), count))])
    )
    found: Array = (base * np.where(np.diag(triangle) < 0, -1.0, 1.0)).T
    return found
