"""Solves mixtures for who is in them: the best estimate that candidates' vectors allow, about.

A mixture is the mean of its records' vectors, so its sum is linear in the unknown memberships: with
Z the candidates' vectors and y a mixture of b of them, b y = Z^T a + noise, a in {0, 1}^N. Each
entry of a vector is one equation. Where a record brings neighbours that were drawn at random, what
it brings on average is known, and how far that is off: these equations count by their noise. How
large the rest of the noise is (rounding, a model that is only nearly known) the mixtures say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import linalg

__all__ = ["Solver", "View"]

Array = npt.NDArray[np.float64]

_SCALES = np.geomspace(1e-8, 1e1, 37)
"""Variances of noise that are tried, in mean squares of a mixture's sum."""
_STEPS = 60
_PULL = 10.0
"""Weight of the constraints in a step over the prior's. On Cora (b = 36, width 64) 50 and 300 steps
give AUCs within 0.01 of each other."""


@dataclass(frozen=True, repr=False)
class View:
    """One part of what a mixture shows of its records.

    Attributes:
        rows: (N, D), what each candidate brings, on average.
        drawn: (D, D), covariance of what one candidate brings besides; zero if nothing is drawn.
    """

    rows: Array
    drawn: Array


class Solver:
    """Candidates, ready to be looked for in mixtures.

    Args:
        views: of the same candidates.
        seen: mixtures in these views, each (m, D_k), which say how large the noise is.
        sizes: (m,), records in each mixture.
    """

    def __init__(self, views: Sequence[View], seen: Sequence[Array], sizes: Array) -> None:
        count = len(views[0].rows)
        share = float(np.mean(sizes)) / count
        spread = share * (1.0 - share)  # variance of one membership
        self._means = [view.rows.mean(axis=0) for view in views]
        self._roots: list[Array] = []
        rows = []
        for view, sums in zip(views, self._sums(seen, sizes), strict=True):
            centred = view.rows - view.rows.mean(axis=0)
            root = _noise(centred, view.drawn * float(np.mean(sizes)), sums, spread)
            self._roots.append(root)
            rows.append(_over(centred, root))
        self._rows, self._prior = np.hstack(rows), 1.0 / spread
        gram = self._rows @ self._rows.T
        gram[np.diag_indices_from(gram)] += (1.0 + _PULL) * self._prior
        inverse, _ = linalg.lapack.dpotri(linalg.cholesky(gram, overwrite_a=True))
        self._inverse = np.triu(inverse) + np.triu(inverse, 1).T

    def _sums(self, seen: Sequence[Array], sizes: Array) -> list[Array]:
        """Return sums of mixtures, less what as many average candidates bring."""
        return [sizes[:, None] * (s - mean) for s, mean in zip(seen, self._means, strict=True)]

    def memberships(self, seen: Sequence[Array], sizes: Array) -> Array:
        """Return how much of each candidate is in each mixture, (N, m): about 0 to 1.

        Least squares, all candidates equally likely beforehand, under what must hold: nobody is in
        a mixture less than not at all, and in all of them together at most once. By alternating
        directions (Boyd et al., Foundations and Trends in Machine Learning 2011, section 5).

        Args:
            seen: mixtures in the views, each (m, D_k).
            sizes: (m,), records in each.
        """
        sums = self._sums(seen, sizes)
        wanted = np.hstack([_over(s, r) for s, r in zip(sums, self._roots, strict=True)])
        likely = np.broadcast_to(sizes / len(self._rows), (len(self._rows), len(sizes)))
        fixed = self._rows @ wanted.T + self._prior * likely
        found, owed = likely.copy(), np.zeros(likely.shape)
        for _ in range(_STEPS):
            free = self._inverse @ (fixed + _PULL * self._prior * (found - owed))
            found = _at_most_once(free + owed)
            owed += free - found
        return np.asarray(free)


def _noise(rows: Array, drawn: Array, sums: Array, spread: float) -> Array:
    """Return the Cholesky factor of the covariance of what memberships do not explain, (D, D).

    That is what was drawn, and noise alike in all entries, as much as makes the sums likeliest:
    with random memberships they are about normal, with covariance spread Z^T Z + drawn + noise.
    """
    values, vectors = np.linalg.eigh(spread * (rows.T @ rows) + drawn)
    squares = (sums @ vectors) ** 2
    scale = max(float(squares.mean()), 1e-300)

    def unlikely(noise: float) -> float:
        variance = np.maximum(values, 0.0) + noise
        return float((np.log(variance) + squares / variance).sum())

    best = min(scale * _SCALES, key=unlikely)
    return np.asarray(linalg.cholesky(drawn + best * np.eye(len(drawn)), lower=True))


def _over(rows: Array, root: Array) -> Array:
    """Return rows, (n, D), in units of the noise."""
    return np.asarray(linalg.solve_triangular(root, rows.T, lower=True).T)


def _at_most_once(found: Array) -> Array:
    """Return the nearest matrix that is nowhere negative and in no row sums to more than one."""
    nearest = np.maximum(found, 0.0)
    over = nearest.sum(axis=1) > 1.0
    if over.any():  # Duchi et al., ICML 2008, figure 1, for all rows together
        rows = found[over]
        falling = -np.sort(-rows, axis=1)
        cut = (np.cumsum(falling, axis=1) - 1.0) / np.arange(1, rows.shape[1] + 1)
        last = (falling > cut).sum(axis=1) - 1
        nearest[over] = np.maximum(rows - cut[np.arange(len(rows)), last][:, None], 0.0)
    return nearest
