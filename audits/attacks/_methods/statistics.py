"""Ranking scores and their intervals. The bootstrap is over clients, never over records.

Members of one graph are correlated: two clients with a thousand nodes each are two observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["RESAMPLES", "Bootstrap", "Interval", "auc", "best_known", "shares_above"]

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
