"""k-ary randomised response: one of k categories, told truly with odds e^ε.

Warner, "Randomized response", JASA 1965; for k categories Kairouz, Bonawitz and Ramage, "Discrete
distribution estimation under local privacy", ICML 2016, section 2. Proof, for integers a/b <= e^ε:
the message y has probability a/Z where y is the value and b/Z elsewhere, Z = a + (k-1)b, so for
any two values the likelihoods differ by a factor of a/b at most. A draw is uniform on 0 … Z-1: the
first a numbers tell the truth, and each following block of b is one other category.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from crypto.errors import OutOfRange
from crypto.ldp.mechanism import FiniteRandomiser, Integers, Reals, several
from crypto.ldp.odds import odds_within
from crypto.samplers import MAX_MODULUS, Stream

__all__ = ["RandomisedResponse"]


class RandomisedResponse(FiniteRandomiser):
    """One category of k; a value outside of 0 … k-1 counts as the nearest.

    Args:
        categories: k, at least 2.
        epsilon: of one message.

    Raises:
        OutOfRange: k or ε cannot be drawn.
    """

    name = "randomised_response"

    def __init__(self, categories: int, epsilon: Fraction | float | int) -> None:
        self.epsilon = Fraction(epsilon)
        self._odds = odds_within(self.epsilon)
        self.categories = categories
        self._total = self._odds.high + (categories - 1) * self._odds.low
        if categories < 2 or self._total > MAX_MODULUS:
            raise OutOfRange("Randomised response has between 2 and about 2^35 categories.")
        self.length, self.low, self.high = 1, 0, categories - 1

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return the category that is told, (1,)."""
        true = min(max(int(value), 0), self.categories - 1)
        drawn = int(stream.uniform(self._total, 1)[0])
        if drawn < self._odds.high:
            return np.array([true], dtype=np.int64)
        other = (drawn - self._odds.high) // self._odds.low
        return np.array([other + (other >= true)], dtype=np.int64)

    def decode(self, message: Integers) -> Reals:
        """Return an estimate of the one-hot vector, (k,): (1[y = j] - q) / (p - q)."""
        told = np.zeros(self.categories)
        told[int(message[0])] = 1.0
        return np.asarray(
            (told * self._total - self._odds.low) / (self._odds.high - self._odds.low)
        )

    def variance(self, clients: int) -> float:
        """Return ∑_j Var, the same for every value: (1 - ∑_j P_j²) / (p - q)² / n.

        One-hot y has covariance diag(P) - P P'; P is p once and q at the k - 1 others.
        """
        several(clients)
        p, q = self._odds.high / self._total, self._odds.low / self._total
        spread = 1.0 - p * p - (self.categories - 1) * q * q
        return spread / (p - q) ** 2 / clients

    def law(self, value: Any) -> dict[tuple[int, ...], Fraction]:
        """Return the exact probability of each category."""
        high, low = (Fraction(part, self._total) for part in self._odds)
        return {(y,): high if y == int(value) else low for y in range(self.categories)}
