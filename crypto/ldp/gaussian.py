"""Discrete Gaussian noise on a whole vector of one client, clipped in L2.

Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020: two
integer vectors at L2 distance Δ are Δ²/(2σ²)-concentrated (theorem 4, entry by entry, which adds
up over entries), at every Rényi order. The norm is at most `levels` in integers, so Δ = 2 levels
for any two values.
"""

from __future__ import annotations

import math

from crypto.ldp.noise import NoisedVector
from crypto.noise import DiscreteGaussian

__all__ = ["GaussianVector"]


class GaussianVector(NoisedVector):
    """See the head of this file; `scale` is σ."""

    name = "discrete_gaussian"
    law_of_noise, norm, tails = DiscreteGaussian, "l2", 10.0

    @property
    def rho(self) -> float:
        """Concentration of one message: its Rényi divergence at order α is at most α ρ."""
        return self.sensitivity**2 / (2.0 * self.scale**2)

    def of_noise(self) -> float:
        """Return σ² as summed over the integers; from σ = 1 on it is σ² to one part in 10^6."""
        reach = range(1, math.ceil(12.0 * self.scale) + 2)
        if self.scale >= 8.0:
            return self.scale**2
        weights = [math.exp(-(x * x) / (2.0 * self.scale**2)) for x in reach]
        squares = math.fsum(x * x * w for x, w in zip(reach, weights, strict=True))
        return 2.0 * squares / (1.0 + 2.0 * math.fsum(weights))
