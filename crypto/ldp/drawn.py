"""One category that a client draws of its own, by its weights, and tells by the better mechanism.

For a histogram or a set of items: the client draws one of k places in proportion to its weights and
tells it by `RandomisedResponse` or by `UnaryEncoding`, whichever errs less for this k and ε (about:
the former up to k = 3 e^ε + 2, Wang et al., USENIX Security 2017, section 5). The mean estimates
the mean of the clients' shares. Proof: a message's law is a mixture, over the drawn place, of laws
of which any two differ by a factor of a/b <= e^ε at most, and so do any two mixtures of them. How
a place is drawn bears no part of the proof, so weights may be of floating point.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from crypto.ldp.mechanism import FiniteRandomiser, Integers, Reals
from crypto.ldp.randomised_response import RandomisedResponse
from crypto.ldp.unary import UnaryEncoding
from crypto.samplers import Stream

__all__ = ["DrawnCategory"]

_UNIT = 1 << 53


class DrawnCategory(FiniteRandomiser):
    """Weights of k categories, of which one is drawn and told.

    Weights below zero count as zero. A client without any, or with one that is not finite, draws
    among all categories alike: it says what is known without data.

    Args:
        categories: k, at least 2.
        epsilon: of one message.

    Raises:
        OutOfRange: k or ε cannot be drawn.
    """

    name = "category"

    def __init__(self, categories: int, epsilon: Fraction | float | int) -> None:
        self.epsilon, self.categories = Fraction(epsilon), categories
        ways: tuple[RandomisedResponse | UnaryEncoding, ...] = (
            RandomisedResponse(categories, epsilon),
            UnaryEncoding(categories, epsilon),
        )
        self.told = min(ways, key=lambda way: way.variance(1))
        self.length, self.low, self.high = self.told.length, self.told.low, self.told.high

    def drawn(self, value: Any, stream: Stream) -> int:
        """Return the place that is drawn by weights, (k,)."""
        weights = np.maximum(np.asarray(value, dtype=np.float64).ravel(), 0.0)
        if weights.size != self.categories or not np.isfinite(weights).all() or not weights.any():
            weights = np.ones(self.categories)
        ends = np.cumsum(weights / weights.max())
        at = int(stream.uniform(_UNIT, 1)[0]) / _UNIT * ends[-1]
        return min(int(np.searchsorted(ends, at, side="right")), int(np.flatnonzero(weights)[-1]))

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return the message for weights, (k,)."""
        return self.told.encode(self.drawn(value, stream), stream)

    def decode(self, message: Integers) -> Reals:
        """Return an estimate of the shares, (k,)."""
        return self.told.decode(message)

    def variance(self, clients: int) -> float:
        """Return that of the mechanism and of the draw, (1 - ∑ w²)/n at even shares w = 1/k."""
        return self.told.variance(clients) + (1.0 - 1.0 / self.categories) / clients

    def law(self, value: Sequence[Fraction | int]) -> dict[tuple[int, ...], Fraction]:
        """Return the exact probability of every message, for shares that are drawn exactly."""
        total, found = Fraction(sum(value)), dict[tuple[int, ...], Fraction]()
        for place, weight in enumerate(value):
            one = place if isinstance(self.told, RandomisedResponse) else (place,)
            for message, chance in self.told.law(one).items():
                found[message] = found.get(message, Fraction(0)) + chance * weight / total
        return found
