"""How far the record of a run reaches that is still going; ``audit verify`` of a folder alone asks.

Somebody who takes away every head, end and result of a finished run gets this answer, too. So it
is no success (exit code 4). Report, attacks, release and bundle check all steps of a whole run, and
fail at ``files``.
"""

from __future__ import annotations

from dataclasses import replace

from audits.checks import documents
from audits.evidence.own_files import HEADS
from audits.evidence.steps import Case, Check, NotChecked, Verification, run_checks
from protocols.errors import SecureFglError

_BEFORE_THE_END = ("plan", "roster", "approvals", "chain", "plan_vs_ledger", "trust")


def goes_on(case: Case) -> bool:
    """Tell whether nothing in a run's folder records its end: no entry, no head, no result."""
    view = case.view
    if view.side or view.checkpoints or view.result_text:
        return False
    try:
        return not case.ledger_index.ended
    except SecureFglError:  # the step "files" says what is wrong with the plan
        return False


def verify_so_far(case: Case, checks: tuple[Check, ...]) -> Verification:
    """Run the steps that make sense before a run's end; the others are NOT CHECKED.

    Its ledgers are read one after another while they grow, so a message may stand in one and not
    yet in another: each ledger is checked by itself, and against the plan.

    Args:
        case: a run of which `goes_on` is true.
        checks: all steps of a whole run.
    """
    outcome = run_checks(case, tuple(map(_before_the_end, checks)))
    return replace(outcome, so_far=case.ledger_index.so_far) if outcome.ok else outcome


def _before_the_end(check: Check) -> Check:
    if check.name == "files":
        return documents.FILES_SO_FAR
    if check.name == "heads":
        return HEADS
    kept = check.name in _BEFORE_THE_END
    return check if kept else Check(check.name, check.needs, _not_yet)


def _not_yet(case: Case) -> str:
    raise NotChecked("the ledgers record no end of the run, and may still grow")
