"""Vectors on the grid under discrete noise of one's own: what both distributions share."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from crypto.errors import OutOfRange
from crypto.ldp.grid import Norm, on_grid
from crypto.ldp.mechanism import Integers, Randomiser, Reals, several
from crypto.noise import DiscreteGaussian, DiscreteLaplace
from crypto.noise import sampler as shared
from crypto.samplers import Stream

__all__ = ["LEVELS", "NoisedVector"]

LEVELS = 1 << 16
"""The clip norm in grid steps. Truncation moves an entry by less than one of them."""


class NoisedVector(Randomiser):
    """A real vector, clipped and on the grid, plus noise; what is out of reach is cut off.

    Cutting off comes after the noise, so it costs no privacy; so rarely does it happen that the
    estimate's bias is far below a grid step.

    Args:
        length: d.
        bound: the clip norm.
        scale: of the noise, in grid steps.
        levels: the clip norm in grid steps.

    Raises:
        OutOfRange: an argument cannot be used.
    """

    law_of_noise: ClassVar[type[DiscreteGaussian | DiscreteLaplace]]
    norm: ClassVar[Norm]
    tails: ClassVar[float]  # scales from 0 to where noise is cut off

    def __init__(self, length: int, bound: float, scale: float, levels: int = LEVELS) -> None:
        if not (math.isfinite(bound) and bound > 0 and length >= 1 and 1 <= levels < 1 << 24):
            raise OutOfRange("A vector has entries, a finite clip above 0, and 1 to 2^24 levels.")
        self.length, self.bound, self.levels, self.scale = length, bound, levels, scale
        self._noise = shared(self.law_of_noise, scale)
        self.high = levels + math.ceil(self.tails * scale)
        self.low = -self.high

    @property
    def width(self) -> int:
        """Bits of one number on the wire: whole bytes, which long vectors are packed into fast."""
        return -(-super().width // 8) * 8

    @property
    def sensitivity(self) -> int:
        """The norm by which two values differ at most, in grid steps (replace-one)."""
        return 2 * self.levels

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return the noised levels, (d,)."""
        return self.of_levels(on_grid(value, self.bound, self.levels, self.norm), stream)

    def of_levels(self, levels: Integers, stream: Stream) -> Integers:
        """Return integers with noise, (d,)."""
        noise = self._noise.sample(stream, self.length)
        return np.asarray(np.clip(levels + noise, self.low, self.high))

    def decode(self, message: Integers) -> Reals:
        """Return the vector that a message estimates, (d,)."""
        return np.asarray(message * (self.bound / self.levels))

    def variance(self, clients: int) -> float:
        """Return d Var(noise) step² / n; truncation is not in it."""
        several(clients)
        return self.length * self.of_noise() * (self.bound / self.levels) ** 2 / clients

    def of_noise(self) -> float:
        """Return the variance of one entry's noise, in grid steps squared."""
        raise NotImplementedError
