"""How much privacy loss one training run proves: records in and out by coin flip, and guesses.

Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023
(arXiv:2305.08846), Theorem 5.2 and Appendix D: m records are each in the data by a fair coin of its
own; an auditor who sees the output of an (ε, δ) algorithm guesses r of the coins and v of them
rightly. With q = e^ε / (1 + e^ε),

    P[v or more] <= β + 2 m δ α,  β = P[Bin(r, q) >= v],
    α = max over i in 1..v of P[v > Bin(r, q) >= v - i] / i.

The ε at which this reaches 1 - confidence is a lower bound. Neither the algorithm nor the records
matter; that records say little only makes the bound small. Only coins and guesses are pinned: how
many guesses are made must not follow from the coins. Three numbers of guesses are tried, with a
third of the error each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from audits.attacks._methods.lower_bound import CONFIDENCE, Bound

__all__ = ["SHARES", "bound_of", "one_run_bound", "p_value"]

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SHARES = (1.0, 0.5, 0.2)
"""Of the canaries, how many are guessed: the surest on either side."""
_MOST = 60.0  # beyond it e^-ε is no probability that a run could show


def p_value(records: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the largest probability of so many right guesses under an (ε, δ) algorithm.

    Args:
        records: m, each in by a fair coin.
        guesses: r, of m.
        right: v, of r.
        epsilon: of the algorithm.
        delta: of the algorithm.

    Raises:
        ValueError: numbers that are no counts of guesses.
    """
    if not (0 <= right <= guesses <= records and epsilon >= 0 and 0 <= delta <= 1):
        raise ValueError("right guesses are among guesses, and guesses among canaries")
    chance = float(special.expit(epsilon))

    def at_least(count: npt.ArrayLike) -> Array:
        """Return P[Bin(r, q) >= count]."""
        inside = np.maximum(count, 1)
        tails = special.betainc(inside, guesses - np.minimum(inside, guesses) + 1, chance)
        return np.where(np.asarray(count) > 0, tails, 1.0)

    beta = float(at_least(right))
    steps = np.arange(1, right + 1)
    between = (at_least(right - steps) - beta) / steps
    alpha = float(between.max(initial=0.0))
    return min(beta + 2.0 * records * delta * alpha, 1.0)


def one_run_bound(
    records: int, guesses: int, right: int, delta: float, *, error: float = 1.0 - CONFIDENCE
) -> float:
    """Return the lower bound of epsilon; 0 if the guesses prove nothing.

    Args:
        records: m.
        guesses: r.
        right: v.
        delta: of the claim.
        error: with which the bound may be too high.
    """
    low, high = 0.0, _MOST
    if p_value(records, guesses, right, low, delta) >= error:
        return 0.0
    while high - low > 1e-7:
        middle = (low + high) / 2.0
        if p_value(records, guesses, right, middle, delta) < error:
            low = middle
        else:
            high = middle
    return low


def bound_of(
    scores: Sequence[Array],
    coins: Sequence[Bools],
    delta: float,
    *,
    confidence: float = CONFIDENCE,
) -> Bound:
    """Return what scores of all clients' canaries prove, and what perfect ones would have.

    Each client's surest are guessed: the highest as in, the lowest as out, equally many.

    Args:
        scores: of each client, (m,); large speaks for it having trained.
        coins: of each client, (m,), whether it did.
        delta: of the claim.
        confidence: of the bound, all numbers of guesses together.
    """
    records = sum(len(one) for one in coins)
    error = (1.0 - confidence) / len(SHARES)
    found, best = [0.0], [0.0]
    for share in SHARES:
        guessed = [_right(*one, share) for one in zip(scores, coins, strict=True)]
        guesses, right = (sum(side) for side in zip(*guessed, strict=True))
        found.append(one_run_bound(records, guesses, right, delta, error=error))
        best.append(one_run_bound(records, guesses, guesses, delta, error=error))
    return Bound(max(found), max(best), records)


def _right(scores: Array, coins: Bools, share: float) -> tuple[int, int]:
    """Return how many of a client's coins are guessed, and how many rightly."""
    side = max(math.floor(len(coins) * share / 2.0), 1)
    order = np.argsort(scores, kind="stable")
    right = int(coins[order[-side:]].sum()) + int((~coins[order[:side]]).sum())
    return 2 * side, right
