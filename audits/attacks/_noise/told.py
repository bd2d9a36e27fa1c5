"""A local randomiser as a function: messages of two values that it has to keep apart.

The exact probabilities of both values are known, so the attack's score is the log-likelihood ratio
itself: no other attack on one message proves more (Neyman and Pearson).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from audits.attacks._methods.statistics import Bound, lower_bound
from crypto.ldp import FiniteRandomiser, Piecewise
from crypto.samplers import Stream

__all__ = ["proved", "scores_of", "worst_pair"]

Array = npt.NDArray[np.float64]


def worst_pair(claimed: FiniteRandomiser, values: Sequence[Any]) -> tuple[Any, Any]:
    """Return the two values whose messages' exact likelihoods are furthest apart."""
    laws = [claimed.law(value) for value in values]

    def apart(pair: tuple[int, int]) -> float:
        one, other = (laws[place] for place in pair)
        return max(float(one[message] / other[message]) for message in one)

    places = range(len(values))
    one, other = max(((i, j) for i in places for j in places if i != j), key=apart)
    return values[one], values[other]


def scores_of(
    claimed: FiniteRandomiser,
    drawn: FiniteRandomiser,
    pair: tuple[Any, Any],
    runs: int,
    stream: Stream,
    *,
    present: bool,
) -> Array:
    """Return ln P(message | first) - ln P(message | second) of so many messages, (runs,).

    Args:
        claimed: whose probabilities are read.
        drawn: what really draws; the same mechanism, or a weaker one.
        pair: two values.
        runs: messages.
        stream: of the draws.
        present: of the first value, else of the second.
    """
    first, second = (claimed.law(value) for value in pair)
    ratios = {m: math.log(first[m] / second[m]) for m in first}
    value = pair[0] if present else pair[1]
    encode = drawn.of_level if isinstance(drawn, Piecewise) else drawn.encode
    edge = max(ratios.values(), default=0.0)
    found = np.empty(runs)
    for run in range(runs):
        message = tuple(encode(value, stream).tolist())
        found[run] = ratios.get(message, edge)  # none can have it: it speaks for the first
    return found


def proved(
    claimed: FiniteRandomiser,
    drawn: FiniteRandomiser,
    values: Sequence[Any],
    runs: int,
    stream: Stream,
) -> Bound:
    """Return the epsilon that messages of `drawn` prove, with 95 % confidence, at delta 0."""
    pair = worst_pair(claimed, values)
    there, none = (
        scores_of(claimed, drawn, pair, runs, stream, present=present) for present in (True, False)
    )
    return lower_bound(there, none, delta=0.0)
