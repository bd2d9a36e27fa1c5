"""Exact likelihood ratios over small domains, which hold or break a claimed epsilon.

Draws of the tests come from a recorded key, so an outcome repeats itself: no test fails by chance.
With keys drawn anew an honest sampler would fall below a p-value of 10^-6 in one test of a million.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from crypto.ldp import FiniteRandomiser


def below_exp(ratio: Fraction, epsilon: Fraction) -> bool:
    """Tell whether ratio <= e^ε, with 200 digits."""
    with localcontext() as context:
        context.prec = 200
        power = (Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp()
        return Decimal(ratio.numerator) <= power * Decimal(ratio.denominator)


def worst_ratio(mechanism: FiniteRandomiser, values: Iterable[Any]) -> Fraction:
    """Return the largest likelihood ratio of one message over all pairs of values, exactly."""
    laws = [mechanism.law(value) for value in values]
    assert all(sum(law.values()) == 1 for law in laws)
    assert all(law.keys() == laws[0].keys() for law in laws)
    worst = Fraction(1)
    for one, other in combinations(laws, 2):
        for message, chance in one.items():
            worst = max(worst, chance / other[message], other[message] / chance)
    return worst


def pvalue(drawn: dict[tuple[int, ...], int], law: dict[tuple[int, ...], Fraction]) -> float:
    """Return the χ² p-value of counted messages against their exact probabilities."""
    assert drawn.keys() <= law.keys(), "a message was drawn that has no probability"
    total = sum(drawn.values())
    keys = sorted(law, key=lambda k: law[k])
    expected = np.array([float(law[k]) * total for k in keys])
    found = np.array([drawn.get(k, 0) for k in keys], dtype=np.float64)
    few = expected < 5
    if few.any():
        found = np.append(found[~few], found[few].sum())
        expected = np.append(expected[~few], expected[few].sum())
    if expected[-1] < 5 and expected.size > 1:
        found, expected = found[:-1], expected[:-1]
    return float(stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue)


def near(found: float, expected: float, within: float = 0.05) -> bool:
    """Tell whether a measured number lies within a share of what was expected."""
    return math.isclose(found, expected, rel_tol=within)
