"""Ranking scores and their intervals. The bootstrap is over clients, never over records.

Members of one graph are correlated: two clients with a thousand nodes each are two observations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from audits.attacks._shared.models import Claim
from protocols.privacy.accounting import gaussian_epsilon

Array = npt.NDArray[np.float64]

RESAMPLES = 4000
"""Draws of a bootstrap."""

_LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean over clients and its 95 % interval."""

    value: float
    low: float
    high: float
    n: int


def auc(positive: npt.ArrayLike, negative: npt.ArrayLike) -> float:
    """Return the area under the ROC curve: P(positive > negative) + P(equal) / 2.

    The Mann-Whitney statistic over the number of pairs (Hanley and McNeil, Radiology 1982).

    Raises:
        ValueError: one side is empty, or a score is no number.
    """
    above, below = np.ravel(positive), np.ravel(negative)
    if not above.size or not below.size:
        raise ValueError("a ranking needs records on both sides; leave this client out")
    scores = np.concatenate([above, below])
    if np.isnan(scores).any():
        raise ValueError("a score is no number; an attack must give every record one")
    from scipy import stats

    ranks = stats.rankdata(scores)[: above.size]
    pairs = above.size * below.size
    return float((ranks.sum() - above.size * (above.size + 1) / 2) / pairs)


def shares_above(positives: Sequence[Array], negatives: Array, fpr: float) -> Array:
    """Return, per client, the share of its positives found at a false positive rate.

    One threshold for all clients, from their pooled negatives. Where the wanted rate falls inside a
    group of equal scores, so much of that group is taken as makes the rate exact: the ROC curve is
    interpolated, without which a score of few values would read 0.

    Args:
        positives: per client its scores, none empty.
        negatives: pooled scores, at least 1 / `fpr` of them to mean anything.
        fpr: wanted rate, in (0, 1).
    """
    ordered = np.sort(negatives)[::-1]
    allowed = fpr * ordered.size
    cut = ordered[min(int(allowed), ordered.size - 1)]
    over, equal = int((ordered > cut).sum()), int((ordered == cut).sum())
    part = (allowed - over) / equal
    return np.array([np.mean(p > cut) + part * np.mean(p == cut) for p in positives])


def best_known(candidates: Array, units: Sequence[str], *, guess: int) -> Array:
    """Return, per entry, the score of the best of several attackers who see no message.

    For each client the attacker is chosen who did best at all *other* clients, so the choice knows
    nothing of the victim. If that turns out worse than a guess on the whole, he guesses: a prior
    below chance would make a fault out of any message that says nothing.

    Args:
        candidates: (attackers, n) scores; larger is worse.
        units: the client of each of the n entries.
        guess: which attacker guesses.
    """
    names = np.asarray(units, dtype=object).astype(str)
    found = np.empty(candidates.shape[1])
    for name in np.unique(names):
        own = names == name
        best = guess if own.all() else int(candidates[:, ~own].mean(axis=1).argmax())
        found[own] = candidates[best, own]
    return found if found.mean() >= candidates[guess].mean() else candidates[guess].copy()


class Bootstrap:
    """One set of resampled clients, shared by all values of a row, so that differences are paired.

    The percentile interval is too narrow for few clients (at 5 it holds about 83 % of the time
    instead of 95 %), so it is stretched about its mean by t sqrt(n / (n - 1)) / z, the correction
    of the expanded percentile interval (Hesterberg, The American Statistician 2015, section 5.3),
    applied to lengths.

    Args:
        units: the client of each entry; entries of one client are averaged first.
        rng: draws the clients.
    """

    def __init__(self, units: Sequence[str], rng: np.random.Generator) -> None:
        _, self._place = np.unique(np.asarray(units, dtype=object).astype(str), return_inverse=True)
        self.clients = int(self._place.max()) + 1
        self._draws = rng.integers(self.clients, size=(RESAMPLES, self.clients))

    def interval(self, values: Array, bounds: tuple[float, float]) -> Interval:
        """Return the mean over clients with its interval, cut at the metric's bounds.

        Of one client the interval is everything: nothing is known of the next one.
        """
        sums = np.bincount(self._place, weights=values, minlength=self.clients)
        means = sums / np.bincount(self._place, minlength=self.clients)
        centre, n = float(means.mean()), self.clients
        if n < 2:
            return Interval(centre, min(bounds[0], centre), max(bounds[1], centre), n)
        resampled = means[self._draws].mean(axis=1)
        tail = (1.0 - _LEVEL) / 2
        low, high = np.quantile(resampled, [tail, 1.0 - tail])
        from scipy import stats

        wide = stats.t.ppf(1.0 - tail, n - 1) / stats.norm.ppf(1.0 - tail) * np.sqrt(n / (n - 1))
        low, high = centre - wide * (centre - low), centre + wide * (high - centre)
        return Interval(centre, max(bounds[0], float(low)), min(bounds[1], float(high)), n)


# --- How much privacy loss a distinguishing attack proves, with confidence ---
#
# An attack scores runs of a mechanism on two neighbouring inputs. Where its threshold keeps a share
# TPR of the one and FPR of the other, every (ε, δ) that the mechanism really has obeys
# TPR <= e^ε FPR + δ. So ε_LB = ln((TPR_low - δ) / FPR_up) with confidence 1 - α, if each of the two
# bounds (Clopper and Pearson, Biometrika 1934) holds with 1 - α/2. The threshold is chosen on one
# half of the runs and the bound computed on the other; else the choice would bias it (Jagielski,
# Ullman and Oprea, NeurIPS 2020). A bound above a claim falsifies it; one below proves nothing.
#
# For Gaussian noise the same rates give more: Φ^-1(TPR) - Φ^-1(FPR) is at most μ, and μ gives ε at
# any δ (Nasr et al., "Tight auditing of differentially private machine learning", USENIX Security
# 2023). That reading assumes a Gaussian, and is marked.

CONFIDENCE = 0.95
Reading = Literal["any mechanism", "gaussian"]


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
