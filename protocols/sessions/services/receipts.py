"""A client's view of the root over all clients' heads: its receipts, and the farewell."""

from __future__ import annotations

from typing import ClassVar

from protocols.errors import BadEnvelope, Replay
from protocols.evidence.heads import Spoken, check_place, client_items
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.sessions.part import Delivery, Engine, SessionPart, Takes
from protocols.sessions.services.budget_heads import ClientBudgets
from protocols.sessions.services.progress import Progress
from protocols.sessions.table import Event
from protocols.wire.control import Acknowledgement, Call, Farewell, Place
from protocols.wire.envelope import Envelope, commitment
from protocols.wire.inbox import Incoming
from protocols.wire.inputs_digest import given_digest
from protocols.wire.where import Where


class Receipts(SessionPart):
    """Compares what this client sent with what the aggregator says that it heard.

    Args:
        engine: the session.
        progress: how far this client is.
        budgets: sends the heads of this client's budgets with its leave.
    """

    def __init__(self, engine: Engine, progress: Progress, budgets: ClientBudgets) -> None:
        super().__init__(engine)
        self._progress, self._budgets = progress, budgets
        self._spoken = Spoken(client_items(engine.context.plan.items))

    def sent(self, envelope: Envelope) -> None:
        """Note what leaves, to compare the aggregator's receipt with."""
        header = envelope.header
        self._spoken.add(header.exchange, header.item, commitment(envelope), header.head)

    def _take_leave(self, incoming: Incoming) -> list[Delivery]:
        """Take over the heads at the end of the run, after which nothing more is answered."""
        farewell, place = self._engine.read(incoming, (Farewell, Place))
        header = incoming.header
        if header.given != given_digest([farewell], self._context.dims(incoming.item)):
            raise BadEnvelope("A farewell's content is not what its header says was given.")
        if header.exchange <= self._progress.exchange:
            raise Replay("A farewell is older than an Ask that was answered.")
        if header.round != self._context.plan.rounds or header.attempt != 1:
            raise BadEnvelope("A farewell arrived that is not of the end of the run.")
        self._engine.move(Event.PART)
        self._progress.reached(header.exchange, header.round)
        where = Where(header.round, header.exchange, (), header.given)
        self.check(farewell, place, where)
        item = self._context.find("", Service.HEADS, Step.ACK)
        taken = self._engine.send(item, [Acknowledgement()], header.sender, where)
        return [taken, *self._budgets.heads(header.sender, where)]

    def check(self, shared: Message, place: Message, where: Where) -> None:
        """Check the receipt of what this client said last; write down the root it stands under."""
        if not isinstance(shared, (Call, Farewell)) or not isinstance(place, Place):
            raise BadEnvelope("A receipt is missing.")
        line, missing = self._spoken.line(place.exchange, place.items)
        check_place(
            self._engine.name, self._context.roster.clients, line, place.proof, shared.heads
        )
        facts = {
            "exchange": where.exchange,
            "received": place.exchange,
            "items": place.items,
            "missing": int(missing),
            "root": shared.heads.hex(),
            "round": where.round,
        }
        self._engine.record("heads", facts)

    takes: ClassVar[Takes] = {(Service.HEADS, Step.DOWN): _take_leave}
