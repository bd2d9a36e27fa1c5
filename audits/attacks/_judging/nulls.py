"""Whether null controls sit where they should, over all rows of a report together.

A row's null control is an estimate, so even a sound one lies outside its own 95 % interval in one
row of twenty. A report has dozens of rows. So the controls of a report are tested together, by
Holm's procedure (Scandinavian Journal of Statistics 1979), which needs no independence: a report
whose controls are all sound holds an INVALID row with a chance of `FAMILY` at most.

A control is biased by the larger of two p-values, as either alone can be too small by chance:

* Student's t of the clients' means, by the standard error that the interval was made of. Of few
  clients whose scores happen to be alike this error is near 0.
* The normal approximation by the records: a mean of independent scores in [0, 1] is not steadier
  than their number allows. Records of one client may depend on each other, which only the first
  one sees.

Both are made of what is written down in the row, so that whoever reads a report makes them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FAMILY", "LEVEL", "gain_p", "holm", "more_needed", "p_value", "trials"]

FAMILY = 1e-4
"""Chance of at least one INVALID row in a report whose null controls are sound."""
LEVEL = 0.95
_RANK = 1.0 / 12.0  # variance of a rank in [0, 1], what an AUC is the mean of

Array = npt.NDArray[np.float64]


def trials(positives: int, negatives: int, clients: int) -> float:
    """Return how many independent records a mean rests on.

    Args:
        positives: records or trials of the one kind, as the row counts them.
        negatives: of the other.
        clients: what it is over, where no records are counted.
    """
    sides = [n for n in (positives, negatives) if n > 0] or [max(clients, 1)]
    return 1.0 / sum(1.0 / n for n in sides)


def p_value(
    value: npt.ArrayLike,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    clients: int,
    against: npt.ArrayLike,
    *,
    above: bool,
    records: float,
) -> Array:
    """Return the p-value of the claim that a null control sits where it should.

    All but `clients` and `records` may be arrays of one shape.

    Args:
        value: of the control.
        low: lower end of its 95 % interval.
        high: upper end.
        clients: behind it; at least 2.
        against: where it should be, or what it should not exceed.
        above: only a control above `against` is a sign of bias.
        records: from `trials`.
    """
    from scipy.special import ndtr, stdtr, stdtrit

    middle, limit = np.asarray(value), np.asarray(against)
    away = middle - limit if above else np.abs(middle - limit)
    wide = np.where(middle > limit, middle - np.asarray(low), np.asarray(high) - middle)
    error = wide / stdtrit(clients - 1, (1.0 + LEVEL) / 2)
    room = np.clip(limit * (1.0 - limit), 0.0, _RANK)
    sides = 1.0 if above else 2.0
    by_clients = stdtr(clients - 1, -_ratio(away, error))
    by_records = ndtr(-_ratio(away, np.sqrt(room / records)))
    larger = sides * np.maximum(by_clients, by_records)
    return np.asarray(np.minimum(larger, 1.0), dtype=np.float64)


def gain_p(
    gap: tuple[npt.ArrayLike, npt.ArrayLike],
    excess: tuple[npt.ArrayLike, npt.ArrayLike],
    scores: tuple[npt.ArrayLike, npt.ArrayLike],
    clients: int,
    records: float,
) -> Array:
    """Return the p-value of the claim that a protected message tells nothing.

    The largest of three: Student's t of what clients' scores are above the null control's, and of
    what they are above the prior, each client by client; and the normal approximation by records of
    the first, as both scores are means over so many. A split that is no draw lifts null control and
    score alike, so chance is not what they are held against.

    All but `clients` and `records` may be arrays of one shape.

    Args:
        gap: protected minus prior, and the lower end of its 95 % interval.
        excess: protected minus null, likewise.
        scores: protected and null.
        clients: behind them; at least 2.
        records: from `trials`.
    """
    from scipy.special import ndtr, stdtr, stdtrit

    wide = stdtrit(clients - 1, (1.0 + LEVEL) / 2)
    by_clients = [
        stdtr(clients - 1, -_ratio(np.asarray(value), (np.asarray(value) - low) / wide))
        for value, low in (gap, excess)
    ]
    spread = np.sqrt(sum(map(_room, scores)) / records)
    by_records = ndtr(-_ratio(np.asarray(excess[0]), spread))
    return np.asarray(np.maximum.reduce([*by_clients, by_records]), dtype=np.float64)


def more_needed(p: float, level: float, records: int) -> int:
    """Return of how many records, or clients, a gain of that size would have this p-value.

    Args:
        p: that so many gave; below 1/2.
        level: wanted.
        records: behind `p`.
    """
    from scipy.special import ndtri

    return int(np.ceil(records * max(float(ndtri(level) / ndtri(p)), 1.0) ** 2))


def _room(score: npt.ArrayLike) -> Array:
    """Return the largest variance of what a score is the mean of; of no share, that of a rank."""
    share = np.asarray(score, dtype=np.float64)
    inside = (share > 0.0) & (share < 1.0)
    return np.where(inside, np.minimum(share * (1.0 - share), _RANK), _RANK)


def _ratio(away: Array, error: Any) -> Array:
    """Return away / error; without any error infinity, or 0 where nothing is away."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(away > 0, away / np.asarray(error), np.minimum(away, 0.0))
    return np.asarray(found, dtype=np.float64)


def holm(found: Sequence[float], level: float = FAMILY) -> list[bool]:
    """Return which p-values Holm's procedure rejects, at a family-wise level."""
    rejected = [False] * len(found)
    for done, place in enumerate(sorted(range(len(found)), key=found.__getitem__)):
        if found[place] >= level / (len(found) - done):
            break
        rejected[place] = True
    return rejected
