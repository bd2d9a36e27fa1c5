"""Verification of a run's evidence, offline, in a fixed order; the first failure is what counts.

files -> plan -> roster -> chain -> tree -> plan_vs_ledger -> receipts -> opened -> keys ->
budget -> result -> witnesses -> captured -> report -> heads

Two statements are kept apart. *Integrity*: nothing recorded was changed; this is what the steps
show. *Completeness*: everything sent was recorded; it rests on the gateway being the only way out.
"""

from __future__ import annotations

from audits.checks.captured import CAPTURED
from audits.checks.renderings import REPORT
from audits.evidence.own_files import EVIDENCE, HEADS
from audits.evidence.run_files import RunView
from audits.evidence.steps import Case, Status, Step, Verification, run_checks

__all__ = ["CHECKS", "Status", "Step", "Verification", "verify"]

CHECKS = (*EVIDENCE, CAPTURED, REPORT, HEADS)
"""The report tells of the first ones alone: captured rounds go when their days are over."""


def verify(view: RunView) -> Verification:
    """Run every step on a run's files. Never raises for what the files hold.

    Args:
        view: the run; give `held_heads` for more than "self-consistent only", and `expected_plan`
            to be sure that it is the approved plan.
    """
    return run_checks(Case(view), CHECKS)
