"""One Ask at the aggregator: what is sent, what comes back; and the refusals of whom it asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from protocols.errors import (
    CohortTooSmall,
    LocalProtocolError,
    NotInPlan,
    PolicyError,
    Refused,
    RemoteProtocolError,
    SecureFglError,
    UnfitMessage,
)
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.rounds import Given, Reply
from protocols.sessions.part import Collection, Delivery, Engine, Scope, SessionPart, Takes
from protocols.wire.control import REFUSALS, Refusal
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming

# --- The aggregator's exchanges: their numbers, and what was sent in the last one ---


class Exchanges(SessionPart):
    """Counts exchanges.

    Attributes:
        number: of the exchange under way, or the last one; never repeats in a run.
        outstanding: what was sent last, perhaps unanswered.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.number = 0
        self.outstanding: list[Delivery] = []

    def next(self) -> int:
        """Begin another exchange and return its number."""
        self.number += 1
        return self.number


# --- The Ask that is under way at the aggregator: what goes out, what came back, and the reply ---


@dataclass
class Held:
    """An Ask that is to go out.

    Attributes:
        exchange: of the form.
        round: its round.
        number: of the exchange.
        members: who is asked.
        handed: what they are given.
        beside: what the layer gives them besides: their cluster, where the form splits.
    """

    exchange: Exchange
    round: int
    number: int
    members: tuple[str, ...]
    handed: tuple[Given, ...]
    beside: tuple[Message, ...] = ()

    @property
    def where(self) -> Where:
        """Its place, before it is known what is given."""
        return Where(self.round, self.number, self.members)


class Asked(SessionPart):
    """Holds one Ask from its beginning to its reply."""

    apart: ClassVar[frozenset[str]] = frozenset({"_reply"})  # kept as a piece of its own

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._held: Held | None = None
        self._collection: Collection | None = None
        self._reply: Reply | None = None

    def hold(self, held: Held) -> None:
        """Begin an Ask."""
        self._held = held

    @property
    def held(self) -> Held:
        """The Ask that is to go out."""
        if self._held is None:
            raise LocalProtocolError("No Ask is to go out.")
        return self._held

    def collect(self, collection: Collection) -> None:
        """Note that the Ask goes out, and where its answers are collected."""
        self._held, self._collection = None, collection

    @property
    def answers(self) -> Collection:
        """What came back so far."""
        if self._collection is None:
            raise LocalProtocolError("Nothing was asked.")
        return self._collection

    def finish(self) -> None:
        """Make the reply of what the answers amount to."""
        self._reply = self.answers.reply()

    @property
    def reply(self) -> Reply | None:
        """What the Ask brought back; None until it is here."""
        return self._reply

    def forget(self, scope: Scope) -> None:
        """Drop what was not used of an Ask (O9)."""
        if scope is Scope.ASK:
            self._held = self._collection = self._reply = None


# --- Refusals: a closed list of codes leaves; the reason stays in the local ledger (O27) ---

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
