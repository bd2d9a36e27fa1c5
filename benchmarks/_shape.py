"""What a group of simulated clients asks of its members, and when its total opens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crypto.graph import Degree, honest_majority
from protocols.plan.cohorts import DrawnPlan

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Shape:
    """What a group asks of its members.

    Attributes:
        neighbours: whom a client shares masks with, k.
        holders: who holds shares of one client, itself counted where all pairs are.
        seen: whose evidence and votes a holder checks.
        threshold, votes: shares that rebuild a seed; votes that make a list.
        least: fewest survivors of a total.
        window: fewest among any k/2 successive ones; 0 with all pairs.
    """

    neighbours: int
    holders: int
    seen: int
    threshold: int
    votes: int
    least: int
    window: int = 0

    @classmethod
    def of_cohort(cls, size: int, plan: DrawnPlan) -> Shape:
        """All pairs of a cohort that lots drew."""
        half = honest_majority(size, plan.within)
        return cls(size - 1, size, size, max(half, plan.least), max(half, plan.least), plan.least)

    @classmethod
    def sparse(cls, degree: Degree, least: int) -> Shape:
        """One graph over everybody."""
        k, t = degree.neighbours, degree.threshold
        return cls(k, k, 2 * k + 1, t, honest_majority(k + 1, degree.corrupt), least, degree.window)

    def opens(self, uploaded: Flags, voted: Flags, gave: Flags) -> bool:
        """Tell whether a total opens, of flags in the order of the graph's circle."""
        if int(uploaded.sum()) < self.least:
            return False
        if not self.window:
            return int(voted.sum()) >= self.votes and int(gave.sum()) >= self.threshold
        around = _around(voted, self.neighbours) + voted
        thin = _windows(uploaded, self.neighbours // 2).min() < self.window
        shares = _around(gave, self.neighbours)
        return not thin and around.min() >= self.votes and shares.min() >= self.threshold


def _windows(flags: Flags, width: int) -> npt.NDArray[np.int64]:
    """Return how many are set among each `width` successive ones of a circle."""
    whole = np.concatenate([[0], np.cumsum(np.concatenate([flags, flags[:width]]))])
    return np.asarray(whole[width : width + len(flags)] - whole[: len(flags)])


def _around(flags: Flags, neighbours: int) -> npt.NDArray[np.int64]:
    """Return how many of each one's neighbours on the circle are set."""
    half = neighbours // 2
    both = _windows(np.roll(flags, half), 2 * half + 1)
    return np.asarray(both - flags)
