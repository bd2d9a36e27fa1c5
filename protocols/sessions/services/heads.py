"""The aggregator's part where it makes all clients witnesses of each other's ledgers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import ClassVar

from crypto.samplers import entropy
from protocols.errors import RemoteProtocolError, WrongStage
from protocols.evidence.heads import SILENT, Line, client_items, received, tree, word_of
from protocols.plan.steps import Service, Step
from protocols.sessions.part import Delivery, Engine, SessionPart, Takes
from protocols.sessions.services.exchanges import Exchanges
from protocols.sessions.services.survivors import Survivors
from protocols.sessions.table import Event
from protocols.wire.control import Farewell, Place
from protocols.wire.envelope import commitment
from protocols.wire.inbox import Incoming
from protocols.wire.inputs_digest import given_digest
from protocols.wire.roles import Role
from protocols.wire.where import Where


class Heads(SessionPart):
    """Tells all clients what was heard of them; see `protocols.evidence.heads`.

    Args:
        engine: the session.
        exchanges: numbers the farewell.
        survivors: who is there to get it.
    """

    def __init__(self, engine: Engine, exchanges: Exchanges, survivors: Survivors) -> None:
        super().__init__(engine)
        self._exchanges, self._survivors = exchanges, survivors
        self._received: dict[str, Line] = {}

    @property
    def heard(self) -> frozenset[str]:
        """The clients that said anything in this run so far."""
        return frozenset(self._received)

    def hear(self, incoming: Incoming) -> None:
        """Note an envelope of a client; its receipt stands in the ledger."""
        header = incoming.header
        if incoming.item.sender == str(Role.CLIENT):
            before, said = self._received.get(header.sender, SILENT), commitment(incoming.envelope)
            facts = header.exchange, header.item, said, header.head
            self._received[header.sender] = received(before, *facts)

    def places(self) -> tuple[bytes, dict[str, Place]]:
        """Return the root over all clients' heads, and each client's place under it."""
        root, proofs = tree(self._context.roster.clients, self._received)
        lines = {client: self._received.get(client, SILENT) for client in proofs}
        items = client_items(self._context.plan.items)
        return root, {
            client: Place(
                exchange=lines[client][0], items=word_of(lines[client][1], items), proof=proof
            )
            for client, proof in proofs.items()
        }

    def write_down(self, root: bytes, where: Where) -> None:
        """Record which root goes out."""
        facts = {"exchange": where.exchange, "root": root.hex(), "round": where.round}
        self._engine.record("heads", facts)

    def farewell(self) -> Iterable[Delivery]:
        """Return the heads at the end of the run, for all clients that are there."""
        round = self._context.plan.rounds
        self._engine.move(Event.PART)
        number = self._exchanges.next()
        root, places = self.places()
        message = Farewell(nonce=entropy(16), heads=root)
        item = self._context.find("", Service.HEADS, Step.DOWN)
        given = given_digest([message], self._context.dims(item))
        where = Where(round, number, (), given)
        there = self._survivors.present(self._context.roster.clients, round)
        self.write_down(root, where)
        return (self._engine.send(item, [message, places[c]], c, where) for c in there)

    def take_leave(self, data: bytes) -> None:
        """Take what a client says to the farewell. Whatever it is, all rounds are done.

        Only what is authentic is recorded; a refusal and an acknowledgement end alike.
        """
        with contextlib.suppress(RemoteProtocolError):
            incoming = self._engine.open(data, exchange=self._exchanges.number)
            self.hear(incoming)
            if incoming.item.part is Service.BUDGET:
                self._engine.handler(incoming)(incoming)

    def _take_receipt(self, incoming: Incoming) -> None:
        """Refuse a receipt of the heads before they were given; later `take_leave` takes it."""
        raise WrongStage("A receipt of the last heads arrived before they were given.")

    takes: ClassVar[Takes] = {(Service.HEADS, Step.ACK): _take_receipt}
