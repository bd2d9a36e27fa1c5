"""An oracle: composed privacy loss distributions of discrete mechanisms, on a grid of losses.

A mechanism with laws P and Q of two values has the loss ln(P(y)/Q(y)) with probability P(y). Losses
of T messages add up, so their distribution is the T-fold convolution, and
δ(ε) = E[max(0, 1 - e^(ε - L))] (Sommer, Meiser and Mohammadi, PoPETs 2019; Koskela et al., AISTATS
2020). Losses are rounded up to the grid for an upper bound of ε, and down for a lower one. No
Fourier transform: every product is of numbers that are not negative, so rounding errors stay
relative.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["composed_epsilon", "gaussian_pair", "laplace_pair", "pairs_of"]

Array = npt.NDArray[np.float64]
_LEAST = 1e-16  # what lies beyond on either side counts in full, or not at all for a lower bound


def composed_epsilon(
    one: Array, other: Array, releases: int, delta: float,
    side: Literal["upper", "lower"] = "upper", step: float = 1e-3,
) -> float:  # fmt: skip
    """Return ε of so many messages at `delta`, in the direction of `one` against `other`.

    Args:
        one: probabilities of all messages under the first value, (m,), each above 0.
        other: under the second.
        releases: T.
        delta: of all of them.
        side: of the bound.
        step: of the grid.
    """
    losses = np.log(one / other) / step
    levels = (np.ceil(losses - 1e-9) if side == "upper" else np.floor(losses + 1e-9)).astype(int)
    low, law = int(levels.min()), np.bincount(levels - levels.min(), weights=one)
    start, total, lost = 0, np.ones(1), 0.0
    for bit in bin(releases)[2:]:
        start, total, lost = 2 * start, np.convolve(total, total), 2.0 * lost
        if bit == "1":
            start, total = start + low, np.convolve(total, law)
        kept = np.flatnonzero(total > _LEAST)
        lost += float(total[: kept[0]].sum() + total[kept[-1] + 1 :].sum())
        start, total = start + int(kept[0]), total[kept[0] : kept[-1] + 1]
    grid = (start + np.arange(total.size)) * step
    beside = lost if side == "upper" else 0.0  # as if its loss were infinite

    def above(epsilon: float) -> float:
        loss = np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - grid)))
        return float(total @ loss) + beside

    if beside > delta:
        return math.inf
    left, right = 0.0, max(0.0, float(grid[-1]))
    if above(0.0) <= delta:
        return 0.0
    while right - left > 1e-6:
        middle = (left + right) / 2.0
        left, right = (left, middle) if above(middle) <= delta else (middle, right)
    return right


def pairs_of(laws: tuple[dict[tuple[int, ...], object], dict[tuple[int, ...], object]]) -> Array:
    """Return both laws of one mechanism as an array, (2, messages)."""
    one, other = laws
    return np.array([[float(one[m]), float(other[m])] for m in one]).T  # type: ignore[arg-type]


def laplace_pair(apart: int, scale: float) -> Array:
    """Return the laws of one entry under discrete Laplace noise of two values `apart`, exactly.

    Beyond both values the loss is ± apart/scale, so that all of it is one message.
    """
    decay = math.exp(-1.0 / scale)
    at = np.arange(1, apart)
    weight = (1.0 - decay) / (1.0 + decay)
    tail = 1.0 / (1.0 + decay)  # of X <= 0
    far = tail * math.exp(-apart / scale)
    one = np.concatenate([[tail], weight * np.exp(-at / scale), [far]])
    return np.stack([one, one[::-1]])


def gaussian_pair(apart: int, sigma: float) -> Array:
    """Return the laws of one entry under discrete Gaussian noise, to 12 standard deviations."""
    reach = math.ceil(12.0 * sigma)
    at = np.arange(-reach, reach + apart + 1, dtype=np.float64)
    found = [np.exp(-((at - value) ** 2) / (2.0 * sigma**2)) for value in (0.0, float(apart))]
    return np.stack([law / law.sum() for law in found])
