"""What a PASS could have missed: the smallest gain over the prior that would have been found."""

from __future__ import annotations

from audits.attacks._judging.nulls import LEVEL
from audits.attacks._methods.statistics import Interval

__all__ = ["POWER", "detectable"]

POWER = 0.95
"""Chance with which a gain of that size is found."""


def detectable(gap: Interval, raw_gap: Interval, margin: float, exact: bool) -> float:
    """Return the smallest gain that would have been a FAIL with the chance `POWER`.

    Of estimates: the true gain at which the lower end of the interval lies above the margin, by the
    noncentral t distribution, with as many clients that differ as much as these did (minimum
    detectable effect). Of facts: the gain of the raw control, which was planted and found in every
    unit; nothing smaller was tried.

    Args:
        gap: protected minus prior, over at least two clients where it is an estimate.
        raw_gap: raw minus prior.
        margin: see `audits.attacks._shared.verdicts.judge`.
        exact: facts, not estimates.
    """
    from scipy.special import nctdtrinc, stdtrit

    if exact:
        return raw_gap.low
    df = gap.n - 1
    cut = float(stdtrit(df, (1.0 + LEVEL) / 2))
    wide = max(gap.high - gap.value, gap.value - gap.low)
    return margin + float(nctdtrinc(df, 1.0 - POWER, cut)) * wide / cut
