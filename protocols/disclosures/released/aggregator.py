"""The aggregator's part where clients compute the model: it hands on the totals that moved it.

With every Ask that would hand out the model goes the last total in its place. A client that was
away gets the totals that it missed before it is asked; they are kept until every client has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from protocols.disclosures._checked.totals import total_of
from protocols.disclosures.released.messages import SharedTotal
from protocols.errors import LocalProtocolError, WrongStage
from protocols.messages import Message
from protocols.plan.learns import RECOMPUTED
from protocols.plan.plan import Item
from protocols.plan.steps import Service, Step
from protocols.rounds import Given
from protocols.sessions.asking import Asked, Exchanges
from protocols.sessions.engine import Phase
from protocols.sessions.part import IDLE, Collection, Delivery, Engine, SessionPart, Stages, Takes
from protocols.sessions.survivors import Survivors
from protocols.wire.codec import encode
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming

_CATCHING_UP = "catching up"


class SharedTotals(SessionPart):
    """Hands totals on; its phase is BEFORE_ASK, where somebody missed more than the last one.

    Args:
        engine: the session.
        asked: the Ask under way.
        exchanges: numbers them.
        survivors: who is left of its cohort.
    """

    called: ClassVar[str] = "totals"
    phase: ClassVar[int | None] = Phase.BEFORE_ASK
    stages: ClassVar[Stages] = {IDLE: {_CATCHING_UP}}

    def __init__(
        self, engine: Engine, asked: Asked, exchanges: Exchanges, survivors: Survivors
    ) -> None:
        super().__init__(engine)
        self._asked, self._exchanges, self._survivors = asked, exchanges, survivors
        self._totals: list[SharedTotal] = []  # oldest first: all that some client lacks, and one
        self._has: dict[str, int] = {}  # by client: the exchange of its last total
        self._sent: dict[str, int] = {}  # by client: of the total that it was sent just now

    def settled(self, answers: Collection) -> None:
        """Note that whoever answered has all totals so far; forget what nobody lacks."""
        if not self._recomputes(answers.exchange.name) or not self._totals:
            return
        self._has.update(dict.fromkeys(answers.survivors, self._totals[-1].exchange))
        least = min(self._has.get(client, 0) for client in self._context.roster.clients)
        last = self._totals[-1]
        self._totals = [t for t in self._totals if t.exchange > least or t is last]

    def answered(self, answers: Collection) -> None:
        """Keep the total that an Ask brought back, if it moves the model."""
        if (found := total_of(self._context, answers)) is not None:
            before = self._totals[-1].exchange if self._totals else 0
            self._totals.append(SharedTotal(**found, before=before, model=bytes(32)))

    def alike(self, given: Given) -> Message | None:
        """Return the last total in place of the model, with the digest of the model."""
        held = self._asked.held
        if not self._recomputes(held.exchange.name) or given is not held.handed[0]:
            return None
        if not isinstance(given, Message):
            raise LocalProtocolError("A model is handed out that nobody here can read.")
        dims = self._context.dims(self._down(held.exchange.name))
        model = hashlib.sha256(encode([given], dims)).digest()
        if self._totals:
            return _with(self._totals[-1], model)
        empty = {f.name: bytes(f.sizes(dims)[0]) for f in SharedTotal.fields if f.wire == "bytes"}
        nothing: dict[str, Any] = {"exchange": 0, "before": 0, "round": 0, **empty}
        return SharedTotal(**{**nothing, "model": model})

    # --- totals that were missed ----------------------------------------------------------------

    def wanted(self) -> bool:
        """Tell whether a client that is asked missed more than the last total."""
        held = self._asked.held
        return self._recomputes(held.exchange.name) and bool(self._behind(held.members))

    def enter(self) -> Iterable[Delivery] | None:
        """Send everybody that is behind the next total that it lacks."""
        self.go(_CATCHING_UP)
        return self._send()

    def advance(self) -> Iterable[Delivery] | None:
        """Send the next one; who did not answer is not asked in this round."""
        held = self._asked.held
        away, self._sent = set(self._sent), {}
        if away:
            held.members = tuple(name for name in held.members if name not in away)
            self._survivors.leave_out(away, held.round)
            self._survivors.check_left(held.members)
            held.members = self._survivors.fitting(held.members, held.exchange)
        if self._behind(held.members):
            return self._send()
        held.number = self._exchanges.next()
        return None

    def _behind(self, members: Sequence[str]) -> dict[str, SharedTotal]:
        """Return, for who lacks more than the last total, the next one that it lacks."""
        found = {}
        for name in members:
            has = self._has.get(name, 0)
            missed = [total for total in self._totals[:-1] if total.exchange > has]
            if missed:
                found[name] = missed[0]
        return found

    def _send(self) -> list[Delivery]:
        held, number = self._asked.held, self._exchanges.next()
        behind = self._behind(held.members)
        self._sent = {name: total.exchange for name, total in behind.items()}
        item = self._context.find("", Service.TOTALS, Step.DOWN)
        where = Where(held.round, number)
        return [self._engine.send(item, [total], name, where) for name, total in behind.items()]

    def _take_receipt(self, incoming: Incoming) -> None:
        sender = incoming.header.sender
        if self.stage != _CATCHING_UP or sender not in self._sent:
            raise WrongStage("A receipt of a total arrived that was not sent.")
        self._has[sender] = self._sent.pop(sender)

    def _recomputes(self, exchange: str) -> bool:
        return self._down(exchange).model == RECOMPUTED

    def _down(self, exchange: str) -> Item:
        return self._context.find(exchange, Service.ASK, Step.DOWN)

    takes: ClassVar[Takes] = {(Service.TOTALS, Step.ACK): _take_receipt}


def _with(total: SharedTotal, model: bytes) -> SharedTotal:
    fields = {field.name: getattr(total, field.name) for field in SharedTotal.fields}
    return SharedTotal(**{**fields, "model": model})


AGGREGATOR = SharedTotals
