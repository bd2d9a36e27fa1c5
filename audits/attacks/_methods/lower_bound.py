"""How much privacy loss a distinguishing attack proves, with confidence.

An attack scores runs of a mechanism on two neighbouring inputs. Where its threshold keeps a share
TPR of the one and FPR of the other, every (ε, δ) that the mechanism really has obeys
TPR <= e^ε FPR + δ. So ε_LB = ln((TPR_low - δ) / FPR_up) with confidence 1 - α, if each of the two
bounds (Clopper and Pearson, Biometrika 1934) holds with 1 - α/2. The threshold is chosen on one
half of the runs and the bound computed on the other; else the choice would bias it (Jagielski,
Ullman and Oprea, NeurIPS 2020). A bound above a claim falsifies it; one below proves nothing.

For Gaussian noise the same rates give more: Φ^-1(TPR) - Φ^-1(FPR) is at most μ, and μ gives ε at
any δ (Nasr et al., "Tight auditing of differentially private machine learning", USENIX Security
2023). That reading assumes a Gaussian, and is marked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from audits.attacks._shared.models import Claim
from protocols.privacy.accounting import gaussian_epsilon

__all__ = ["CONFIDENCE", "Bound", "Reading", "ceiling", "claim", "lower_bound", "untested"]

CONFIDENCE = 0.95
Reading = Literal["any mechanism", "gaussian"]
Array = npt.NDArray[np.float64]

_CANDIDATES = 400  # thresholds from each side, dense in the tails
_MOST = 1e9  # what is printed for an epsilon that no trials bound


@dataclass(frozen=True)
class Bound:
    """What a distinguishing attack proved.

    Attributes:
        epsilon: the lower bound, at least 0.
        ceiling: what an attack without any error would have proved with as many trials.
        trials: per side; half of them chose the threshold.
    """

    epsilon: float
    ceiling: float
    trials: int


def lower_bound(
    present: Array,
    absent: Array,
    *,
    delta: float,
    confidence: float = CONFIDENCE,
    reading: Reading = "any mechanism",
) -> Bound:
    """Return the lower bound that scores prove.

    Args:
        present: scores of independent runs with the record, (n,); large speaks for it.
        absent: as many without it, (n,).
        delta: of the claim.
        confidence: 1 - α of the bound.
        reading: ``gaussian`` if the mechanism is known to add Gaussian noise.

    Raises:
        ValueError: fewer than 4 runs on a side, or unequally many.
    """
    if present.shape != absent.shape or present.ndim != 1 or present.size < 4:
        raise ValueError("a bound needs equally many runs on both sides, and 4 at least")
    half, tail = present.size // 2, (1.0 - confidence) / 2.0
    thresholds = _thresholds(present[:half], absent[:half])
    guessed = _proved(present[:half], absent[:half], thresholds, delta, tail, reading)
    side, place = np.unravel_index(int(np.argmax(guessed)), guessed.shape)
    one = thresholds[place : place + 1]
    found = _proved(present[half:], absent[half:], one, delta, tail, reading)[side, 0]
    trials = present.size
    best = ceiling(trials - half, delta=delta, confidence=confidence, reading=reading)
    return Bound(_epsilon(float(found), delta, reading), best, trials)


def ceiling(
    trials: int,
    *,
    delta: float = 0.0,
    confidence: float = CONFIDENCE,
    reading: Reading = "any mechanism",
) -> float:
    """Return the bound of an attack that never errs, with so many trials per side for the bound."""
    tail = (1.0 - confidence) / 2.0
    worst = np.array([tail ** (1.0 / trials)])
    return _epsilon(float(_loss(worst, 1.0 - worst, delta, reading)[0]), delta, reading)


def _thresholds(present: Array, absent: Array) -> Array:
    """Return candidates between the scores, dense at both ends of both samples."""
    tails = np.geomspace(0.5 / present.size, 0.5, _CANDIDATES // 2)
    shares = np.concatenate([tails, 1.0 - tails])
    found: Array = np.unique(np.quantile(np.stack([present, absent]), shares, axis=1))
    return found


def _proved(
    present: Array,
    absent: Array,
    thresholds: Array,
    delta: float,
    tail: float,
    reading: Reading,
) -> Array:
    """Return the loss that each threshold proves, (2, thresholds): by scores from it on, and below.

    The loss is bounded in both directions, so what is rare with the record counts as well.
    """
    runs = present.size
    ones = runs - np.searchsorted(np.sort(present), thresholds, side="left")
    zeros = runs - np.searchsorted(np.sort(absent), thresholds, side="left")
    above = _loss(_low(ones, runs, tail), _up(zeros, runs, tail), delta, reading)
    below = _loss(_low(runs - zeros, runs, tail), _up(runs - ones, runs, tail), delta, reading)
    return np.stack([above, below])


def _loss(low: Array, up: Array, delta: float, reading: Reading) -> Array:
    """Return what a rate of at least `low` against one of at most `up` proves: μ or ε, or 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if reading == "gaussian":
            found = special.ndtri(low) - special.ndtri(up)
        else:
            found = np.log(np.maximum(low - delta, 0.0)) - np.log(up)
    return np.where(np.isfinite(found) & (found > 0), found, 0.0)


def _epsilon(loss: float, delta: float, reading: Reading) -> float:
    """Return ε of a proved loss."""
    return gaussian_epsilon(loss, delta) if reading == "gaussian" and loss > 0 else loss


def _low(count: npt.NDArray[np.int64], runs: int, tail: float) -> Array:
    """Return Clopper and Pearson's lower bound of a rate, which fails with probability `tail`."""
    inside = np.maximum(count, 1)
    return np.where(count > 0, special.betaincinv(inside, runs - inside + 1, tail), 0.0)


def _up(count: npt.NDArray[np.int64], runs: int, tail: float) -> Array:
    """Return the upper bound."""
    inside = np.minimum(count, runs - 1)
    return np.where(count < runs, special.betaincinv(inside + 1, runs - inside, 1.0 - tail), 1.0)


def claim(text: str, epsilon: float, unit: str, bound: Bound, *, able: bool) -> Claim:
    """Return a claim with the bound that was held against it.

    Args:
        text: the claim in words.
        epsilon: what is claimed.
        unit: whose presence it is about.
        bound: the largest that was proved.
        able: whether the planted violation was proved; otherwise the claim stays untested, since
            an attack that proves nothing of it has tested nothing.
    """
    claimed, proved = _decimal(epsilon, up=True), _decimal(bound.epsilon, up=False)
    refuted = float(proved) > float(claimed)  # as written down, so that a reader finds the same
    return Claim(
        text=text[:400],
        epsilon_claim=claimed,
        unit=unit,
        epsilon_lb=proved,
        ceiling=_decimal(bound.ceiling, up=False),
        confidence=f"{CONFIDENCE:g}",
        trials=bound.trials,
        status="falsified" if refuted else "not_falsified" if able else "untested",
    )


def untested(text: str, epsilon: float, unit: str) -> Claim:
    """Return a claim that no attack was held against."""
    return Claim(
        text=text[:400], epsilon_claim=_decimal(epsilon, up=True), unit=unit, status="untested"
    )


def _decimal(value: float, *, up: bool) -> str:
    """Return a number with four places, rounded against whoever made the claim look good."""
    scaled = min(value, _MOST) * 1e4
    return f"{(math.ceil(scaled) if up else math.floor(scaled)) / 1e4:.4f}"
