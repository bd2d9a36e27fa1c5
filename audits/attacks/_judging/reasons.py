"""Why a row has its verdict, in words."""

from __future__ import annotations

from math import ceil
from typing import Literal

from audits.attacks._judging.figures import Figures
from audits.attacks._methods.statistics import Interval
from audits.attacks._shared.models import Evidence
from audits.attacks._shared.rules import NullSide

__all__ = ["Cause", "above_reason", "limit_of", "needed_for", "reason_of", "span"]

Cause = Literal["alone", "biased", "weak", "leak", "within", "sample"]
_SLACK = 1e-9  # above rounding, so that equal bounds are equal on every machine
_MOST_CLIENTS = 100_000  # beyond it, "more clients" is no advice


def limit_of(figures: Figures, null_side: NullSide) -> float:
    """Return what the null control should not be above, or should be equal to."""
    above = null_side == "above"
    return max(figures.chance, figures.prior.value) if above else figures.chance


def reason_of(cause: Cause, found: Figures, margin: float, gate: float, null_side: NullSide) -> str:
    """Say in words why figures give their verdict."""
    lead, gap = found.raw_gap, found.gap
    seen = f"{found.protected.value:.3f} is {_beside(gap)}"
    if cause == "alone":
        return "sample: one client has no interval; nothing can be said of others like it"
    if cause == "biased":
        what = "an attacker without the message" if null_side == "above" else "chance"
        return (
            f"the null control reads {span(found.null)}, where {what} reaches "
            f"{limit_of(found, null_side):.3f}, further off than luck takes it: the attack or the "
            "split of its records is biased, so its other figures mean nothing"
        )
    if cause == "weak":
        return (
            f"weak attack: on the unprotected message it reaches {found.raw.value:.3f}, which is "
            f"{_beside(lead)}; {gate:g} above is needed, and a low score on the protected message "
            "proves nothing"
        )
    if cause == "leak":
        return f"{seen}; the margin is {margin:g}"
    if cause == "within":
        if gap.low > 0 and gap.low != gap.high:
            return f"{seen}, which is within the margin {margin:g}"
        return f"no evidence above an attacker without the message{_within(gap)}"
    needed = needed_for(gap, margin)
    more = f"about {needed} clients would be needed" if needed else "more clients would hardly help"
    return f"sample: {seen}, on both sides of the margin {margin:g}; {more}"


def above_reason(found: Figures, level: Evidence, needed: int) -> str:
    """Say in words that a message tells something, and how sure that is.

    Args:
        found: of the row.
        level: how sure.
        needed: records, or clients, with which the same gain would be beyond doubt.
    """
    about = _beside(found.gap)
    if level == "there":
        return f"leakage is there, about this much: {about}; luck does this in 1 report of 1,000"
    return (
        f"signs of leakage: {about}; luck does this in 1 report of 20, so test with more records "
        f"(n = {needed:,})"
    )


def needed_for(gap: Interval, limit: float) -> int | None:
    """Return how many clients would move the nearer end of the interval to the limit."""
    away = abs(gap.value - limit)
    half = gap.high - gap.value if gap.value <= limit else gap.value - gap.low
    if away <= _SLACK:
        return None
    needed = max(ceil(gap.n * (half / away) ** 2), gap.n + 1)
    return needed if needed <= _MOST_CLIENTS else None


def _beside(gap: Interval) -> str:
    """Say how far a score is above or below the prior; a fact has no interval."""
    if gap.low == gap.high == 0:
        return "no more than an attacker without the message reaches"
    below = gap.value < 0
    found = Interval(-gap.value, -gap.high, -gap.low, gap.n) if below else gap
    far = f"{found.value:.3f}" if gap.low == gap.high else span(found)
    return f"{far} {'below' if below else 'above'} an attacker without the message"


def _within(gap: Interval) -> str:
    """Say where the interval of a PASS ends; of facts, and below the prior, there is no more."""
    if gap.high < 0.0005:
        return "" if gap.low == gap.high else ": the whole interval ends below it"
    return f": the interval ends {gap.high:.3f} above it"


def span(found: Interval) -> str:
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"
