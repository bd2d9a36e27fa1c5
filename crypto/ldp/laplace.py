"""Discrete Laplace noise on a whole vector of one client, clipped in L1: pure epsilon.

Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC
2009, for one entry; for a vector the ratio of likelihoods of x and x' is
exp((‖y - x'‖₁ - ‖y - x‖₁)/t) <= exp(‖x - x'‖₁/t). The L1 norm is at most `levels` in integers, so
Δ = 2 levels for any two values, and ε = 2 levels / t.
"""

from __future__ import annotations

import math
from fractions import Fraction

from crypto.errors import OutOfRange
from crypto.ldp.noise import LEVELS, NoisedVector
from crypto.noise import DiscreteLaplace

__all__ = ["LaplaceVector", "scale_within"]


def scale_within(epsilon: Fraction | float | int, levels: int) -> float:
    """Return the smallest double t with 2 levels / t <= ε, compared as fractions.

    Raises:
        OutOfRange: ε is not a finite number above 0.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise OutOfRange("An epsilon is a finite number above 0.")
    exact = Fraction(2 * levels) / Fraction(epsilon)
    scale = float(exact)
    return scale if Fraction(scale) >= exact else math.nextafter(scale, math.inf)


class LaplaceVector(NoisedVector):
    """See the head of this file; `scale` is t."""

    name = "discrete_laplace"
    law_of_noise, norm, tails = DiscreteLaplace, "l1", 40.0

    @classmethod
    def within(
        cls, length: int, bound: float, epsilon: Fraction | float | int, levels: int = LEVELS
    ) -> LaplaceVector:
        """Return the mechanism with just enough noise for ε; raises OutOfRange if none is."""
        return cls(length, bound, scale_within(epsilon, levels), levels)

    @property
    def epsilon(self) -> Fraction:
        """Epsilon of one message, for any two values, exactly."""
        return Fraction(self.sensitivity) / Fraction(self.scale)

    def of_noise(self) -> float:
        """Return 2 e^(1/t)/(e^(1/t) - 1)²."""
        return 2.0 * math.exp(1.0 / self.scale) / math.expm1(1.0 / self.scale) ** 2
