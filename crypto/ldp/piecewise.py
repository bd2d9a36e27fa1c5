"""Bounded scalars by the piecewise mechanism, on a grid.

Wang et al., "Collecting and analyzing multidimensional data with local differential privacy", ICDE
2019, algorithm 2. Discretised: a value is brought to an integer x in -L … L. The message y is an
integer in -C … C, C = L + h. The 2h + 1 integers around x have probability a/Z each, all others
b/Z, with a/b <= e^ε and Z = a(2h+1) + b(2C+1 - (2h+1)). Proof: Z does not depend on x, so for any
two values the likelihoods of y differ by a factor of a/b at most.

The integers of -C … C add up to 0, so E[y] = x (a-b)(2h+1)/Z exactly: y Z/((a-b)(2h+1)) has no
bias. h = L e^(-ε/2), rounded, is the paper's width ((C-1)/(C+1) in its units); any h is private.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from crypto.errors import OutOfRange
from crypto.ldp.mechanism import FiniteRandomiser, Integers, Reals, several
from crypto.ldp.odds import odds_within
from crypto.samplers import Stream

__all__ = ["Piecewise"]


class Piecewise(FiniteRandomiser):
    """One real number within centre ± bound; beyond it is clipped, what is none is the centre.

    Args:
        bound: above 0.
        epsilon: of one message.
        levels: L, grid steps from 0 to the bound.
        centre: the middle of the range, public.

    Raises:
        OutOfRange: an argument cannot be used.
    """

    name = "piecewise"

    def __init__(
        self,
        bound: float,
        epsilon: Fraction | float | int,
        levels: int = 1 << 12,
        centre: float = 0.0,
    ) -> None:
        if not (math.isfinite(bound) and bound > 0 and 1 <= levels <= 1 << 20):
            raise OutOfRange("A bounded number has a finite bound above 0, and 1 to 2^20 levels.")
        self.epsilon, self.bound, self.levels = Fraction(epsilon), bound, levels
        self.centre = centre
        self._odds = odds_within(self.epsilon)
        self._half = round(levels * math.exp(-float(self.epsilon) / 2.0))
        self._reach = levels + self._half
        self._window = 2 * self._half + 1
        rest = 2 * self._reach + 1 - self._window
        self._near = self._odds.high * self._window
        self._total = self._near + self._odds.low * rest
        self.length, self.low, self.high = 1, -self._reach, self._reach

    def on_grid(self, value: Any, stream: Stream) -> int:
        """Return the integer x of a value, rounded up or down at random, without bias."""
        given = float(np.ravel(value)[0]) - self.centre
        if not math.isfinite(given):
            return 0
        scaled = min(max(given / self.bound, -1.0), 1.0) * self.levels
        low = math.floor(scaled)
        return low + int(int(stream.uniform(1 << 53, 1)[0]) < int((scaled - low) * 2.0**53))

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return the message, (1,), for a real number."""
        return self.of_level(self.on_grid(value, stream), stream)

    def of_level(self, level: int, stream: Stream) -> Integers:
        """Return the message for an integer x of the grid."""
        drawn, start = int(stream.uniform(self._total, 1)[0]), level - self._half
        if drawn < self._near:
            return np.array([start + drawn // self._odds.high], dtype=np.int64)
        other = (drawn - self._near) // self._odds.low - self._reach  # of those outside the window
        return np.array([other + self._window * (other >= start)], dtype=np.int64)

    @property
    def _gain(self) -> float:
        """What the message's mean is, in units of x."""
        return (self._odds.high - self._odds.low) * self._window / self._total

    def decode(self, message: Integers) -> Reals:
        """Return an estimate of the value, (1,)."""
        return np.asarray(self.centre + message / self._gain * (self.bound / self.levels))

    def variance(self, clients: int) -> float:
        """Return the variance at ±bound, where it is largest, over n.

        E[y²] = ((a-b) W(x) + b A)/Z with A = ∑ y² over -C … C and W over the window around x;
        W = (2h+1)x² + h(h+1)(2h+1)/3.
        """
        several(clients)
        half, reach, level = self._half, self._reach, self.levels
        around = self._window * level**2 + half * (half + 1) * self._window // 3
        everywhere = reach * (reach + 1) * (2 * reach + 1) // 3
        gap = self._odds.high - self._odds.low
        second = Fraction(gap * around + self._odds.low * everywhere, self._total)
        gain = Fraction(gap * self._window, self._total)
        step = self.bound / self.levels
        return float(second / gain**2 - level**2) * step * step / clients

    def law(self, value: Any) -> dict[tuple[int, ...], Fraction]:
        """Return the exact probability of every message, for an integer x of the grid."""
        high, low = (Fraction(part, self._total) for part in self._odds)
        return {
            (y,): high if abs(y - int(value)) <= self._half else low
            for y in range(-self._reach, self._reach + 1)
        }
