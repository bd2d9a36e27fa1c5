"""A client's part in the draw: it is bound before it sees anything, and opens once in a run."""

from __future__ import annotations

from typing import ClassVar

from crypto.samplers import entropy
from protocols.errors import BadEnvelope
from protocols.keys.lots import (
    SECRET_BYTES,
    Table,
    bound_to,
    check_commits,
    rows_of,
    sign_commit,
)
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.sessions.drawing.drawn import Drawn
from protocols.sessions.part import Delivery, Engine, SessionPart, Takes
from protocols.sessions.table import Event
from protocols.wire.control import DrawCall, DrawCommit, DrawCommits, DrawLot, DrawLots
from protocols.wire.inbox import Incoming
from protocols.wire.where import Where


class LotDrawing(SessionPart):
    """Draws lots with all others; see `protocols.keys.lots`.

    Args:
        engine: the session.
        drawn: takes over what was drawn.
    """

    called: ClassVar[str] = "lots"
    lasting: ClassVar[frozenset[str]] = frozenset({"_table"})

    def __init__(self, engine: Engine, drawn: Drawn) -> None:
        super().__init__(engine)
        self._drawn = drawn
        self._secret = self._aggregator = b""  # my bytes; what the aggregator is bound to
        self._table: dict[str, bytes] = {}  # what all clients are bound to; then mine are open

    def _take_call(self, incoming: Incoming) -> list[Delivery]:
        """Draw bytes of this client's own, and say what it is bound to."""
        self._engine.move(Event.DRAW)
        call = self._engine.read_one(incoming, DrawCall)
        if self._secret:
            raise BadEnvelope("Lots are drawn once in a run.")
        self._secret, self._aggregator = entropy(SECRET_BYTES), call.commitment
        said = bound_to(self._context, self._engine.name, self._secret)
        message = DrawCommit(commitment=said, signature=sign_commit(self._context, said))
        return [self._answer(Step.COMMIT, message, incoming)]

    def _take_commits(self, incoming: Incoming) -> list[Delivery]:
        """See that everybody is bound by its own signature; then open, for this table only."""
        self._engine.move(Event.DRAW)
        context, found = self._context, self._engine.read_one(incoming, DrawCommits)
        if not self._secret or self._table:
            raise BadEnvelope("A client opens its bytes once, after it was bound to them.")
        clients, members = context.roster.clients, context.roster.unmask(found.members)
        said = rows_of(clients, members, found.commitments)
        signed = rows_of(clients, members, found.signatures)
        mine = bound_to(context, self._engine.name, self._secret)
        if said.get(self._engine.name) != mine:
            raise BadEnvelope("The table of who is bound to what lacks this client, or lies of it.")
        self._drawn.check(members)
        check_commits(context, said, signed)
        self._table = said
        table = Table(context, self._aggregator, said)
        message = DrawLot(secret=self._secret, signature=table.sign())
        return [self._answer(Step.LOT, message, incoming)]

    def _take_secrets(self, incoming: Incoming) -> list[Delivery]:
        """See that everybody opened what it was bound to, for the table that this client saw."""
        self._engine.move(Event.DRAW)
        context, found = self._context, self._engine.read_one(incoming, DrawLots)
        if not self._table:
            raise BadEnvelope("Bytes were opened before this client knew who is bound to what.")
        clients, members = context.roster.clients, sorted(self._table)
        secrets = rows_of(clients, members, found.secrets)
        signed = rows_of(clients, members, found.signatures)
        table = Table(context, self._aggregator, self._table)
        table.check_all(secrets, signed)
        self._drawn.settle(table.seed(incoming.header.sender, found.own, secrets), members)
        self._secret = b""
        return []

    def _answer(self, step: Step, message: Message, incoming: Incoming) -> Delivery:
        item, header = self._context.find("", Service.DRAW, step), incoming.header
        where = Where(round=header.round, exchange=header.exchange)
        return self._engine.send(item, [message], header.sender, where)

    takes: ClassVar[Takes] = {
        (Service.DRAW, Step.CALL): _take_call,
        (Service.DRAW, Step.COMMITS): _take_commits,
        (Service.DRAW, Step.LOTS): _take_secrets,
    }
