"""How much of a candidate's features lies in what a first layer's change is made of; see A05."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from audits.attacks._shared.material import Array

__all__ = ["Pair", "Rows", "Span", "rows_of", "standard"]

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
