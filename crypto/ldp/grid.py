"""Vectors on an integer grid whose norm is bounded in integers, whatever floating point did."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Norm", "on_grid"]

Norm = Literal["l1", "l2"]


def on_grid(
    vector: NDArray[np.floating[Any]], clip: float, levels: int, norm: Norm = "l2"
) -> NDArray[np.int64]:
    """Return a vector clipped to a norm and truncated to the grid, int64 (d,).

    The integer norm is at most `levels`, checked in integers, so the sensitivity holds. A vector
    that is not finite counts as zero: an error would tell of it.

    Args:
        vector: (d,).
        clip: the norm that becomes `levels` steps.
        levels: below 2^31.
        norm: which one.
    """
    real = np.asarray(vector, dtype=np.float64)
    if not np.isfinite(real).all():
        return np.zeros(real.shape, dtype=np.int64)
    largest = float(np.abs(real).max(initial=0.0))
    if largest == 0.0:
        return np.zeros(real.shape, dtype=np.int64)
    order = 1 if norm == "l1" else 2
    length = largest * float(np.linalg.norm(real / largest, order))  # huge squares overflow
    kept = real / length * (min(length / clip, 1.0) * levels)
    found: NDArray[np.int64] = np.trunc(kept).astype(np.int64)
    while (power := _power(found, norm)) > levels**order:
        shorter = levels / float(power) ** (1.0 / order) * (1.0 - 1e-12)
        found = np.trunc(found * shorter).astype(np.int64)
    return found


def _power(found: NDArray[np.int64], norm: Norm) -> int:
    """Return the norm, or its square, exactly."""
    return int(np.abs(found).sum()) if norm == "l1" else int(found @ found)
