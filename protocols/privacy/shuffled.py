"""What an order that nobody knows would buy: epsilon of messages that a relay shuffles.

A plan states it beside the clients' own epsilon where the policy has a relay for messages under own
noise (O23, ADR 0047), from the closed form alone; the budget is never charged with it.

n clients send one message each by one randomiser with ε₀ at delta 0, and whoever reads them does
not know whose is whose. Feldman, McMillan and Talwar, "Hiding among the clones", FOCS 2021
(arXiv 2012.12803): theorem III.2 compares one client's two values by

    C ~ Bin(n - 1, e^-ε₀),  A ~ Bin(C, 1/2),  Δ ~ Bernoulli(e^ε₀/(e^ε₀ + 1)),
    P = (A + Δ, C - A + 1 - Δ)  against  Q = (A + 1 - Δ, C - A + Δ),

which is `numerical_epsilon`, and theorem III.1 bounds that in closed form, `closed_epsilon`. A
mechanism without a pure ε₀ (a Gaussian) has neither.
"""

from __future__ import annotations

import math

import numpy as np

from protocols.errors import PolicyError

__all__ = ["closed_epsilon", "numerical_delta", "numerical_epsilon", "run_epsilon"]

_REACH = 9.0  # standard deviations of C on either side; the rest is counted in full
_STEPS = 20
_LARGEST = 500.0
_SAMPLERS = 2.0**-20  # of delta, kept for the samplers' tails


def closed_epsilon(local: float, honest: int, delta: float) -> float | None:
    """Return ε of a batch in closed form; None where the theorem says nothing.

    The theorem asks for ε₀ <= ln(n/(16 ln(2/δ))), its authors' program for ln(4/δ) in the place of
    ln(2/δ), and where the theorem has (e^ε₀ - 1)/(e^ε₀ + 1) the program has a larger factor. Taken
    is the stricter condition and the larger ε.

    Args:
        local: ε₀, of one message, at delta 0.
        honest: n, messages of clients that keep to the randomiser, the client's own included.
        delta: of the batch.

    Raises:
        PolicyError: an argument outside its range.
    """
    _check(local, honest, delta)
    if local > math.log(honest / (16.0 * math.log(4.0 / delta))):
        return None
    power = math.exp(local)
    most = 8.0 * math.sqrt(power * math.log(4.0 / delta) / honest) + 8.0 * power / honest
    factor = -math.expm1(-local) / (1.0 + math.exp(-local) / (1.0 + most))
    return min(local, math.log1p(factor * most))


def run_epsilon(
    local: float, honest: int, delta: float, batches: int, *, tails: float = 0.0
) -> float | None:
    """Return ε of a run's batches, for (ε, δ) against who reads them; None where nothing is known.

    Args:
        local: as in `closed_epsilon`.
        honest: messages in every batch, at least, of clients that keep to the randomiser.
        delta: of the run.
        batches: that hold a message of one client.
        tails: probability that any draw of the run is not of the proven distribution.

    Raises:
        PolicyError: an argument outside its range.
    """
    if batches < 1 or honest < 2:
        return None
    one = closed_epsilon(local, honest, delta * (1.0 - _SAMPLERS) / batches)
    if one is None:
        return None
    whole = one * batches
    # A run within `tails` of the proven one is (ε, δ + (1 + e^ε) tails).
    paid = whole < _LARGEST and (1.0 + math.exp(whole)) * tails <= _SAMPLERS * delta
    return whole if paid else None


def numerical_epsilon(local: float, honest: int, delta: float) -> float:
    """Return ε of a batch from theorem III.2, rounded up by at most ε₀ 2^-20; never above ε₀.

    Args:
        local: as in `closed_epsilon`, as the next and the last.
        honest: n.
        delta: of the batch.

    Raises:
        PolicyError: an argument outside its range.
    """
    _check(local, honest, delta)
    low, high = 0.0, local
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (
            (low, middle) if numerical_delta(local, honest, middle) <= delta else (middle, high)
        )
    return high


def numerical_delta(local: float, honest: int, epsilon: float) -> float:
    """Return an upper bound of the δ at which P and Q are within ε; see the head of this file.

    Both directions are alike, as swapping the places turns P into Q. A C that is not looked at
    counts with all of its probability.
    """
    from scipy import stats

    chance, others = math.exp(-local), honest - 1
    spread = _REACH * math.sqrt(others * chance * (1.0 - chance)) + _REACH
    first = max(0, math.floor(others * chance - spread))
    last = min(others, math.ceil(others * chance + spread))
    told = 1.0 / (1.0 + chance)
    found = float(stats.binom.cdf(first - 1, others, chance) + stats.binom.sf(last, others, chance))
    for many in range(first, last + 1):
        half = np.concatenate([[0.0], stats.binom.pmf(np.arange(many + 1), many, 0.5), [0.0]])
        same, other = half[1:], half[:-1]  # of A and of A + 1, at 0, ..., many + 1
        one = told * other + (1.0 - told) * same
        two = told * same + (1.0 - told) * other
        above = np.maximum(one - math.exp(epsilon) * two, 0.0).sum()
        found += float(stats.binom.pmf(many, others, chance) * above)
    return found


def _check(local: float, honest: int, delta: float) -> None:
    if not (math.isfinite(local) and local > 0 and honest >= 2 and 0 < delta < 1):
        raise PolicyError(
            "Shuffled messages have an epsilon above 0, and hide among two clients or more.",
            fix="take a pure epsilon, a cohort of at least 2, and a delta between 0 and 1",
        )
