"""Whether a run stood at the score of a model that always answers the commonest class.

The simulator sees it, as it holds all labels; nobody else could. It is no message of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from algorithms.tasks import Site

__all__ = ["LONG", "commonest", "stood"]

LONG = 10
"""Rounds, one after the other, from which on a run is said to have stood."""

NEAR = 0.015
"""How near a score is to a share, per share of the other classes.

Where one class is rare, every model's accuracy is within a hundredth of the commonest one's share;
only one that gives all records that class is as near as this.
"""


def commonest(sites: Sequence[Site], records: str = "val") -> float | None:
    """Return the share of the commonest class among all sites' records of a split.

    None where records have no classes (ratings, several questions a graph), or there are none.

    Args:
        sites: all of them.
        records: the name of their mask, ``val`` or ``test``.
    """
    found = []
    for site in sites:
        y, mask = getattr(site.data, "y", None), getattr(site.data, records, None)
        if y is None or mask is None or y.ndim != 1 or y.dtype.is_floating_point:
            return None
        found.append(y[mask].numpy())
    labels = np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
    return float(np.bincount(labels).max() / len(labels)) if len(labels) else None


def stood(
    after: Sequence[int], scores: Sequence[Mapping[str, Any]], share: float | None
) -> dict[str, Any] | None:
    """Return the longest stretch of rounds whose validation accuracy is near a share.

    Args:
        after: per score, after how many rounds it was taken.
        scores: the metrics.
        share: of the commonest class; None: there is none.

    Returns:
        ``first`` and ``last`` round, and ``share``; None for no stretch of `LONG` rounds.
    """
    best: list[int] = []
    now: list[int] = []
    if share is None:
        return None
    for number, metrics in zip(after, scores, strict=True):
        score = metrics.get("val_accuracy")
        near = score is not None and abs(score - share) <= NEAR * (1.0 - share)
        now = [*now, number] if near else []
        best = max(best, now, key=len)
    if len(best) < LONG:
        return None
    return {"first": best[0], "last": best[-1], "share": round(share, 4)}
