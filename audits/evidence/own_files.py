"""The steps that look at a run's own files, in their order. The report's integrity section."""

from __future__ import annotations

from audits.checks import (
    canaries,
    documents,
    keys,
    ledgers,
    opened,
    outcome,
    parties,
    traffic,
    witnesses,
)
from audits.evidence.steps import Case, Check
from protocols.errors import SecureFglError
from protocols.wire.roles import Role

EVIDENCE: tuple[Check, ...] = (
    *documents.CHECKS,
    parties.APPROVALS,
    *ledgers.CHECKS,
    *traffic.CHECKS,
    opened.OPENED,
    *keys.CHECKS,
    *outcome.CHECKS,
    witnesses.WITNESSES,
)
"""Of a whole run."""
HEADS = ledgers.HEADS


def evidence(case: Case) -> tuple[Check, ...]:
    """Return the steps of a case: of a whole run, or of one party's side of it.

    A run with canaries has one step more.
    """
    more = (canaries.CANARIES,) if canaries.has_canaries(case) else ()
    return (*(_own_side(case) if case.view.side else EVIDENCE), *more)


def _own_side(case: Case) -> tuple[Check, ...]:
    """Replace the steps that compare ledgers; what they would show is the step ``others``."""
    conducts = _is_aggregator(case)
    found = {
        "receipts": parties.RECEIPTS,
        "opened": parties.OPENED,
        "keys": Check("keys", parties.OPENED.needs, keys.own_keys),
        "result": outcome.CHECKS[0] if conducts else parties.RESULT,
        "witnesses": witnesses.ROOTS if conducts else parties.WITNESSES,
    }
    return (*(found.get(check.name, check) for check in EVIDENCE), parties.OTHERS)


def _is_aggregator(case: Case) -> bool:
    """Tell whether this is the aggregator's side; a roster that cannot be read fails elsewhere."""
    try:
        return case.view.side in case.roster.names(Role.AGGREGATOR)
    except SecureFglError:  # the step "files" says what is wrong with it
        return False
