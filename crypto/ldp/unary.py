"""Optimised unary encoding: a bit for each of k categories, for one category or a set of items.

Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation",
USENIX Security 2017, section 4.3 (OUE): a bit that is set stays so with probability p = 1/2, one
that is not becomes set with q = b/(a+b). Proof: two sets of at most m items differ in at most m
bits that only the first has and m that only the second has. A pair of such bits changes the
likelihood by p(1-q)/(q(1-p)) = a/b at most, so any two sets by (a/b)^m; a/b <= e^(ε/m).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from crypto.errors import OutOfRange
from crypto.ldp.mechanism import FiniteRandomiser, Integers, Reals, several
from crypto.ldp.odds import falls, odds_within
from crypto.samplers import Stream

__all__ = ["UnaryEncoding"]


class UnaryEncoding(FiniteRandomiser):
    """A subset of k categories with at most m members; of a larger one m are drawn.

    Args:
        categories: k.
        epsilon: of one message.
        items: m; 1 for a single category.

    Raises:
        OutOfRange: k, m or ε cannot be drawn.
    """

    name = "unary"

    def __init__(self, categories: int, epsilon: Fraction | float | int, items: int = 1) -> None:
        if not 1 <= items <= categories:
            raise OutOfRange("Unary encoding holds between one item and all of them.")
        self.epsilon, self.categories, self.items = Fraction(epsilon), categories, items
        self._odds = odds_within(self.epsilon / items)
        self._total = self._odds.high + self._odds.low
        self.length, self.low, self.high = categories, 0, 1

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return the bits, (k,).

        Args:
            value: the category numbers of the set; numbers outside of 0 … k-1 are left out.
            stream: see `Randomiser`.
        """
        held = np.unique(np.asarray(value, dtype=np.int64).ravel())
        held = held[(held >= 0) & (held < self.categories)]
        if held.size > self.items:
            held = held[np.argsort(stream.words(held.size), kind="stable")[: self.items]]
        bits = falls(stream, self._odds.low, self._total, self.categories)
        bits[held] = falls(stream, 1, 2, held.size)
        return bits.astype(np.int64)

    def decode(self, message: Integers) -> Reals:
        """Return an estimate of the indicator of each category, (k,): (y - q) / (1/2 - q)."""
        q = self._odds.low / self._total
        return np.asarray((message - q) / (0.5 - q))

    def variance(self, clients: int) -> float:
        """Return ∑_j Var at a full set: (m/4 + (k-m) q(1-q)) / (1/2 - q)² / n."""
        several(clients)
        q = self._odds.low / self._total
        spread = self.items / 4.0 + (self.categories - self.items) * q * (1.0 - q)
        return spread / (0.5 - q) ** 2 / clients

    def law(self, value: Any) -> dict[tuple[int, ...], Fraction]:
        """Return the exact probability of every vector of bits, for a set that is not too large."""
        held, half = {int(one) for one in value}, Fraction(1, 2)
        q = Fraction(self._odds.low, self._total)
        found = {}
        for bits in product((0, 1), repeat=self.categories):
            chance = Fraction(1)
            for place, bit in enumerate(bits):
                chance *= half if place in held else q if bit else 1 - q
            found[bits] = chance
        return found
