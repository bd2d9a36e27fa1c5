"""Refusals: a closed list of codes leaves; the reason stays in the local ledger (O27)."""

from __future__ import annotations

from typing import Any, ClassVar

from protocols.errors import (
    CohortTooSmall,
    NotInPlan,
    PolicyError,
    Refused,
    RemoteProtocolError,
    SecureFglError,
    UnfitMessage,
)
from protocols.plan.steps import Service, Step
from protocols.sessions.part import Delivery, Engine, SessionPart, Takes
from protocols.sessions.services.exchanges import Exchanges
from protocols.wire.control import REFUSALS, Refusal
from protocols.wire.inbox import Incoming
from protocols.wire.where import Where

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


def refusal(engine: Engine, error: Exception, recipient: str, where: Where) -> Delivery:
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
    return engine.send(engine.context.refusal, [message], recipient, where)


class Refusals(SessionPart):
    """Ends the run when a party refuses.

    Args:
        engine: the session.
        exchanges: of which nothing is outstanding any more.
    """

    def __init__(self, engine: Engine, exchanges: Exchanges) -> None:
        super().__init__(engine)
        self._exchanges = exchanges

    def _take_refusal(self, incoming: Incoming) -> None:
        """End the run: whatever the reason is, it stays with who refused."""
        code = self._engine.read_one(incoming, Refusal).code
        error = Refused(incoming.header.sender, REFUSALS[min(code, len(REFUSALS) - 1)])
        self._engine.die(error)
        self._exchanges.outstanding = []
        self._engine.commit()  # the refusal that ends the run stands in the ledger
        raise error

    takes: ClassVar[Takes] = {(Service.REFUSAL, Step.REFUSE): _take_refusal}
