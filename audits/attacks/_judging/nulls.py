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

__all__ = ["FAMILY", "LEVEL", "holm", "p_value", "trials"]

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
