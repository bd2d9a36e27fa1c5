"""The aggregator's part where it makes all clients witnesses of each other's ledgers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import ClassVar

from crypto.samplers import entropy
from protocols.errors import RemoteProtocolError, WrongStage
from protocols.evidence.heads import SILENT, Line, client_items, heard, tree, word_of
from protocols.plan.steps import Service, Step
from protocols.sessions.part import Engine, Parcel, SessionPart, Takes
from protocols.sessions.services.exchanges import Exchanges
from protocols.sessions.services.survivors import Survivors
from protocols.sessions.table import Event
from protocols.wire.control import Farewell, Place
from protocols.wire.envelope import commitment
from protocols.wire.inbox import Letter
from protocols.wire.inputs_digest import given_digest
from protocols.wire.roster import Role
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
        self._heard: dict[str, Line] = {}

    def hear(self, letter: Letter) -> None:
        """Note an envelope of a client; its receipt stands in the ledger."""
        header = letter.header
        if letter.item.sender == str(Role.CLIENT):
            before, said = self._heard.get(header.sender, SILENT), commitment(letter.envelope)
            facts = header.exchange, header.item, said, header.head
            self._heard[header.sender] = heard(before, *facts)

    def places(self) -> tuple[bytes, dict[str, Place]]:
        """Return the root over all clients' heads, and each client's place under it."""
        root, proofs = tree(self._papers.roster.clients, self._heard)
        lines = {client: self._heard.get(client, SILENT) for client in proofs}
        items = client_items(self._papers.plan.items)
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

    def farewell(self) -> Iterable[Parcel]:
        """Return the heads at the end of the run, for all clients that are there."""
        round = self._papers.plan.rounds
        self._engine.move(Event.PART)
        number = self._exchanges.next()
        root, places = self.places()
        message = Farewell(nonce=entropy(16), heads=root)
        item = self._papers.find("", Service.HEADS, Step.DOWN)
        given = given_digest([message], self._papers.dims(item))
        where = Where(round, number, (), given)
        there = self._survivors.present(self._papers.roster.clients, round)
        self.write_down(root, where)
        return (self._engine.send(item, [message, places[c]], c, where) for c in there)

    def take_leave(self, data: bytes) -> None:
        """Take what a client says to the farewell. Whatever it is, all rounds are done.

        Only what is authentic is recorded; a refusal and an acknowledgement end alike.
        """
        with contextlib.suppress(RemoteProtocolError):
            self.hear(self._engine.open(data, exchange=self._exchanges.number))

    def _take_receipt(self, letter: Letter) -> None:
        """Refuse a receipt of the heads before they were given; later `take_leave` takes it."""
        raise WrongStage("A receipt of the last heads arrived before they were given.")

    takes: ClassVar[Takes] = {(Service.HEADS, Step.ACK): _take_receipt}
