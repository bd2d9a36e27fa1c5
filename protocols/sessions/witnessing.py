"""The aggregator's session where it makes all clients witnesses of each other's ledgers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from crypto.samplers import entropy
from protocols.errors import RemoteProtocolError
from protocols.evidence.heads import SILENT, Line, client_items, heard, tree, word_of
from protocols.evidence.ledger import Ledger
from protocols.plan.steps import Service, Step
from protocols.sessions.engine import Outgoing
from protocols.sessions.opening import OpeningSession
from protocols.sessions.table import Event
from protocols.wire.cohorts import as_set
from protocols.wire.control import Farewell, Place
from protocols.wire.envelope import commitment
from protocols.wire.inbox import Letter
from protocols.wire.inputs_digest import given_digest
from protocols.wire.roster import Role
from protocols.wire.run_context import Papers, Where


class WitnessingSession(OpeningSession):
    """What the aggregator tells all clients about what it heard; see `protocols.evidence.heads`."""

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        super().__init__(papers, ledger, rounding)
        self._heard: dict[str, Line] = {}

    def _hear(self, letter: Letter) -> None:
        """Note an envelope of a client; its receipt stands in the ledger."""
        header = letter.header
        if letter.item.sender == str(Role.CLIENT):
            before, said = self._heard.get(header.sender, SILENT), commitment(letter.envelope)
            facts = header.exchange, header.item, said, header.head
            self._heard[header.sender] = heard(before, *facts)

    def _present(self, cohort: Sequence[str], round: int) -> tuple[str, ...]:
        """Return who of a cohort has this epoch's keys and did not vanish in this round."""
        if self._paired:
            ready = as_set(self._agreed.ready)
            cohort = [member for member in cohort if member in ready]
        return tuple(member for member in cohort if member not in self._gone(round))

    def _places(self) -> tuple[bytes, dict[str, Place]]:
        """Return the root over all clients' heads, and each client's place under it."""
        root, proofs = tree(self.papers.roster.clients, self._heard)
        lines = {client: self._heard.get(client, SILENT) for client in proofs}
        items = client_items(self.papers.plan.items)
        return root, {
            client: Place(
                exchange=lines[client][0], items=word_of(lines[client][1], items), proof=proof
            )
            for client, proof in proofs.items()
        }

    def _tell_heads(self, root: bytes, where: Where) -> None:
        facts = {"exchange": where.exchange, "root": root.hex(), "round": where.round}
        self.ledger.record("heads", facts)

    def farewell(self) -> Outgoing:
        """After the last Ask: give all clients that are there the heads at the end of the run."""
        self.alive()
        try:
            return self._farewell()
        except Exception as error:
            self.die(error)
            raise

    def _farewell(self) -> Outgoing:
        round = self.papers.plan.rounds
        self.move(Event.PART)
        self._exchange_number += 1
        root, places = self._places()
        message = Farewell(nonce=entropy(16), heads=root)
        item = self.papers.find("", Service.HEADS, Step.DOWN)
        given = given_digest([message], self.papers.dims(item))
        where = Where(round, self._exchange_number, (), given)
        there = self._present(self.papers.roster.clients, round)
        self._tell_heads(root, where)
        return self._out(self.send(item, [message, places[c]], c, where) for c in there)

    def _take_leave(self, data: bytes) -> None:
        """Take what a client says to the farewell. Whatever it is, all rounds are done.

        Only what is authentic is recorded; a refusal and an acknowledgement end alike.
        """
        with contextlib.suppress(RemoteProtocolError):
            self._hear(self._inbox.open(data, exchange=self._exchange_number))
