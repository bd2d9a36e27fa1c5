"""Which changes of the cohort a policy lets pass: what the totals of one run tell when combined.

Totals at nearly one model can be added and subtracted. Whoever is in some of them and not in others
stands out: the served cohorts cut the clients into groups, each of clients that were always in a
total together. Any combination of totals weighs all members of a group alike, so it rests on whole
groups, and is of fewer clients than the policy's smallest cohort only if some group is. Looking at
pairs of cohorts is not enough: of ten clients, all of them, the first five and the last six differ
by four or more each, and the first less the other two is one client's update.

Sets of clients are whole numbers: bit i is client i of the roster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from protocols.errors import CohortChanged

__all__ = ["CohortChanges", "divided", "whole"]

CohortChanges = Literal["any", "floor", "fixed"]


def divided(groups: Sequence[int], cohort: int, rule: CohortChanges, least: int) -> tuple[int, ...]:
    """Return the groups into which clients are cut once this cohort is served as well.

    Args:
        groups: disjoint, of the cohorts so far.
        cohort: to be served.
        rule: `floor`: no group is smaller than `least`; `fixed`: cohorts that overlap are equal;
            `any`: all cohorts are served.
        least: clients of the policy's smallest cohort.

    Raises:
        CohortChanged: the rule forbids it.
    """
    known, parts = 0, list[int]()
    for group in groups:
        known |= group
        parts += [part for part in (group & cohort, group & ~cohort) if part]
    if new := cohort & ~known:
        parts.append(new)
    if rule == "fixed" and cohort & known and cohort not in groups:
        raise CohortChanged(
            "A sum is of other clients than an earlier one of this run (cohort_changes: fixed).",
            why="a client vanished, or the aggregator asks for totals to subtract",
            fix="ask the very same clients again, or agree on cohort_changes: floor",
        )
    if rule == "floor" and min(part.bit_count() for part in parts) < least:
        raise CohortChanged(
            f"Totals of this run could be combined into one of fewer than {least} clients "
            "(cohort_changes: floor).",
            why="a few clients vanished, or the aggregator asks for totals to subtract",
            fix=f"leave out nobody, or at least {least} clients that were always asked together",
        )
    return tuple(parts)


def whole(groups: Sequence[int], cohort: int) -> int:
    """Return those of a cohort whose whole group is in it."""
    found = 0
    for group in groups:
        if group & cohort == group:
            found |= group
    return found
