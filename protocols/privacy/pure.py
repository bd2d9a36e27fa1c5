"""Pure epsilon of single messages, and what many of them come to.

A mechanism with ε at delta 0 for two values is, for these two, a post-processing of binary
randomised response with odds e^ε (Kairouz, Oh and Viswanath, "The composition theorem for
differential privacy", ICML 2015, theorem 3.1 with lemma 5.1), so its Rényi divergence is at most
that of the two coins with p = e^ε/(1 + e^ε).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from crypto.ldp import MAX_EPSILON
from protocols.errors import PolicyError
from protocols.privacy.renyi import ORDERS, net_epsilon

__all__ = ["Pure", "calibrate_pure", "rdp_pure"]

_DOWN = Context(prec=6, rounding=ROUND_DOWN)
_SLACK = 1.0 + 1e-12  # above the rounding errors of the logarithms


def rdp_pure(orders: Sequence[float], epsilon: float) -> NDArray[np.float64]:
    """Return the largest Rényi divergence, shape (k,), of a mechanism with ε at delta 0.

    (α-1) D = ln(p^α (1-p)^(1-α) + (1-p)^α p^(1-α)), written without overflow; never above ε.

    Raises:
        PolicyError: ε is not a finite number above 0.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise PolicyError("An epsilon is a finite number above 0.", fix="check the noise plan")
    alpha = np.asarray(orders, dtype=np.float64)
    whole = math.log1p(math.exp(-epsilon))  # -ln p
    found = np.logaddexp((alpha - 1.0) * epsilon - whole, -alpha * epsilon - whole) / (alpha - 1.0)
    return np.asarray(np.minimum(np.maximum(found, 0.0) * _SLACK, epsilon))


@dataclass(frozen=True)
class Pure:
    """One message with ε at delta 0, whoever colludes."""

    epsilon: float

    def rdp(self, honest: int) -> NDArray[np.float64]:
        """Return the divergence of one message over `ORDERS`; others' noise adds nothing."""
        return rdp_pure(ORDERS, self.epsilon)


@lru_cache(maxsize=64)
def calibrate_pure(epsilon: float, delta: float, releases: int) -> str:
    """Return the largest epsilon of one message, as decimal text, that keeps a run within (ε, δ).

    Raises:
        PolicyError: none above 10^-5 does.
    """

    def fits(one: float) -> bool:
        spent = releases * rdp_pure(ORDERS, one)
        return net_epsilon(spent, delta, tails=0.0)[0] <= epsilon

    low, high = 1e-5, min(float(MAX_EPSILON), epsilon)
    if not fits(low):
        raise PolicyError(
            f"No message can be told within epsilon {epsilon:g} and delta {delta:g} over "
            f"{releases} messages.",
            why="each of them would have less than 0.00001",
            fix="plan fewer rounds, or a larger epsilon or delta",
        )
    if not fits(high):
        while high > low * (1.0 + 1e-7):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if fits(middle) else (low, middle)
        high = low
    return f"{_DOWN.create_decimal_from_float(high):f}"
