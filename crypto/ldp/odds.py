"""Rational odds below e^ε, and coins that have exactly these odds."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.samplers import Stream

__all__ = ["MAX_EPSILON", "Odds", "odds_within"]

MAX_EPSILON = 24
"""Largest epsilon of one message. Beyond it a message says its value; the odds fit 60 bits."""
_BITS = 24  # of the denominator: the odds are at most one part in 2^24 below e^ε
_EXACT = Context(prec=60)


class Odds(NamedTuple):
    """The likelihood ratio `high` / `low` >= 1 of the two probabilities of a randomiser."""

    high: int
    low: int

    @property
    def ratio(self) -> Fraction:
        """The ratio, exactly."""
        return Fraction(self.high, self.low)


def odds_within(epsilon: Fraction | float | int) -> Odds:
    """Return the largest odds with denominator 2^24 that are at most e^ε.

    `epsilon` is read as the exact number that it is. Decimal's exp is rounded correctly, so one
    unit in the 59th digit less, rounded down, is below e^ε.

    Raises:
        OutOfRange: ε is not above 2^-20 and at most `MAX_EPSILON`.
    """
    exact = Fraction(epsilon)
    if not Fraction(1, 1 << 20) < exact <= MAX_EPSILON:
        raise OutOfRange(
            f"The epsilon of one message lies above 2^-20 and at most at {MAX_EPSILON}; choose one "
            "in between, or fewer messages."
        )
    below = _EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    below = _EXACT.multiply(below, Decimal(1) - Decimal(10) ** -58)
    power = _EXACT.multiply(_EXACT.exp(below), Decimal(1) - Decimal(10) ** -58)
    high = int(_EXACT.multiply(power, Decimal(1 << _BITS)))
    return Odds(max(high, 1 << _BITS), 1 << _BITS)


def falls(stream: Stream, low: int, total: int, count: int) -> NDArray[np.bool_]:
    """Return `count` coins, each true with probability low/total exactly."""
    return np.asarray(stream.uniform(total, count) < np.uint64(low))
