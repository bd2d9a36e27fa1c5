"""Verification of a run's evidence, offline, in a fixed order; the first failure is what counts.

files -> plan -> roster -> approvals -> chain -> tree -> plan_vs_ledger -> receipts -> opened ->
keys -> budget -> result -> witnesses -> captured -> report -> heads

Of one party's side the same steps look at what it alone can show, and ``others`` names the rest.

Two statements are kept apart. *Integrity*: nothing recorded was changed; this is what the steps
show. *Completeness*: everything sent was recorded; it rests on the gateway being the only way out.
"""

from __future__ import annotations

from audits.checks.outcome import CAPTURED
from audits.checks.renderings import REPORT
from audits.evidence.own_files import EVIDENCE, HEADS, evidence
from audits.evidence.run_files import RunView
from audits.evidence.steps import Case, Check, Status, Step, Verification, run_checks

__all__ = ["CHECKS", "Status", "Step", "Verification", "checks_of", "verify"]

CHECKS = (*EVIDENCE, CAPTURED, REPORT, HEADS)
"""The report tells of the first ones alone: captured rounds go when their days are over."""


def verify(view: RunView) -> Verification:
    """Run every step on a run's files. Never raises for what the files hold.

    Args:
        view: the run; give `held_heads` for more than "self-consistent only", and `expected_plan`
            to be sure that it is the approved plan.
    """
    case = Case(view)
    return run_checks(case, checks_of(case))


def checks_of(case: Case) -> tuple[Check, ...]:
    """Return all steps of a case, in order."""
    return (*evidence(case), CAPTURED, REPORT, HEADS)
