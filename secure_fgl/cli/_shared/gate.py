"""When a command fails: severities, and the exit codes of findings in their order."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from secure_fgl.errors import BROKEN, BUDGET, DRIFT, FINDINGS, INCONCLUSIVE, OK

if TYPE_CHECKING:
    from audits.report.models import Finding, Report

MEANS = {
    BROKEN: "evidence broken",
    DRIFT: "something left that was not planned",
    BUDGET: "budget exceeded or claim falsified",
    FINDINGS: "findings",
    INCONCLUSIVE: "inconclusive or not tested",
}
"""Exit codes in the order in which they are returned if several apply, with their meanings."""

_UNDECIDED = ("ABOVE_PRIOR", "INCONCLUSIVE", "INVALID", "ERROR", "NOT_TESTED")


class FailOn(StrEnum):
    """The lightest finding that fails a report."""

    critical = "critical"
    high = "high"
    medium = "medium"
    low = "low"
    never = "never"

    def reached(self, severity: str) -> bool:
        """Tell whether a finding of this severity fails the report."""
        order = list(FailOn)[:-1]
        return self is not FailOn.never and severity in order[: order.index(self) + 1]


def ordered(applies: set[int]) -> list[int]:
    """Return exit codes in the order of :data:`MEANS`; ``[0]`` if there is none."""
    return [code for code in MEANS if code in applies] or [OK]


def tell_codes(codes: list[int]) -> None:
    """Say on stderr which exit codes apply, if any."""
    from secure_fgl.cli._shared.output import say

    if codes != [OK]:
        listed = ", ".join(f"{code} ({MEANS[code]})" for code in codes)
        say(f"Exit codes that apply: {listed}.")


def failing(report: Report, fail_on: FailOn) -> list[Finding]:
    """Return the findings at or above a severity that nobody accepted."""
    return [f for f in report.findings if f.waiver is None and fail_on.reached(f.severity)]


def undecided(report: Report) -> Iterator[str]:
    """Name what ``--strict`` fails on: attacks that could not decide, payloads not looked at."""
    for row in report.attacks:
        if row.verdict in _UNDECIDED:
            yield f"{row.id} {row.payload} {row.what}: {row.verdict}"
    for finding in report.findings:
        # Of what nobody can read, or what the inventory lists in full, this is information only.
        if finding.rule == "NOT_TESTED" and finding.severity != "info":
            yield f"{finding.payload}: NOT TESTED"


def codes_of(report: Report, fail_on: FailOn, *, strict: bool) -> list[int]:
    """Return all exit codes that apply to a report, the one to return first.

    Only 3 listens to `fail_on` and to waivers.
    """
    failed = {step.name for step in report.integrity.steps if step.status == "FAIL"}
    if report.plan_diff.unplanned:
        failed.discard("plan_vs_ledger")  # this is the drift itself; the record of it may hold
    over = any(not account.borne_out for account in report.accounting)
    applies = {
        BROKEN: bool(failed),
        DRIFT: bool(report.plan_diff.unplanned),
        BUDGET: over or any(claim.status == "falsified" for claim in report.claims),
        FINDINGS: bool(failing(report, fail_on)),
        INCONCLUSIVE: strict and any(True for _ in undecided(report)),
    }
    return ordered({code for code, applied in applies.items() if applied})
