"""Exact laws of summed noise, for the tests of accounting."""

from __future__ import annotations

import math

import numpy as np

from crypto.noise import DiscreteGaussian


def law(kind: type, scale: float, shares: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return support and exact probabilities of a sum of shares, wherever above 1e-280."""
    reach = math.ceil(30 * scale if kind is DiscreteGaussian else 200 * scale)
    x = np.arange(-reach, reach + 1.0)
    share = np.exp(-(x**2) / (2 * scale**2) if kind is DiscreteGaussian else -np.abs(x) / scale)
    total = share = share / share.sum()
    for _ in range(shares - 1):
        total = np.convolve(total, share)
    half = total.size // 2
    kept = total > 1e-280
    return np.arange(-half, half + 1)[kept], total[kept]
