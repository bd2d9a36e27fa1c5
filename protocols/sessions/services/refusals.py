"""Refusals: a closed list of codes leaves; the reason stays in the local ledger (O27)."""

from __future__ import annotations

from typing import Any

from protocols.errors import (
    CohortTooSmall,
    NotInPlan,
    PolicyError,
    RemoteProtocolError,
    SecureFglError,
    UnfitMessage,
)
from protocols.sessions.part import Engine, Parcel
from protocols.wire.control import REFUSALS, Refusal
from protocols.wire.run_context import Where

_CODES = (
    (CohortTooSmall, "cohort"),
    (UnfitMessage, "unfit"),
    (NotInPlan, "plan"),
    (PolicyError, "policy"),
    (RemoteProtocolError, "stage"),
)


def refusal_code(error: Exception) -> str:
    """Return the closed list's code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), "internal")


def refusal(engine: Engine, error: Exception, recipient: str, where: Where) -> Parcel:
    """Record why, and return the fixed-size refusal that says only a code (O27)."""
    code = refusal_code(error)
    facts: dict[str, Any] = {
        "code": code,
        "exchange": where.exchange,
        "reason": type(error).__name__,
        "round": where.round,
    }
    if isinstance(error, SecureFglError):
        facts["detail"] = error.what[:300]  # texts of ours hold no data value
    engine.record("refusal", facts)
    message = Refusal(code=REFUSALS.index(code))
    return engine.send(engine.papers.refusal, [message], recipient, where)
