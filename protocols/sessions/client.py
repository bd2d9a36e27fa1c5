"""The client's session: checks what it is asked, lets the algorithm answer, releases the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crypto.errors import CryptoError
from crypto.samplers import derive, entropy
from protocols.boxes import by_peers, open_boxes
from protocols.control import Acknowledgement, Boxes, Call, Key, PairSecret
from protocols.disclosures import Disclosure
from protocols.errors import BadEnvelope, LedgerError, LocalProtocolError, Replay, UnfitMessage
from protocols.forms import Exchange, Form
from protocols.gateway import SHARED, given_digest
from protocols.inbox import Letter
from protocols.ledger import Ledger
from protocols.messages import Message
from protocols.papers import Papers, Where
from protocols.planning import wire_kinds
from protocols.roster import Role, cohort_digest
from protocols.sessions.base import Parcel, Session
from protocols.sessions.table import Event


class ClientSession(Session):
    """CLIENT: holds a site, and the only code that lets anything about it out.

    Args:
        papers, ledger, rounding: see :class:`Session`.
        site: handed to the algorithm's answers; this floor never looks inside.
        form: the admitted form; its exchanges hold the answers.
    """

    def __init__(
        self, papers: Papers, ledger: Ledger, rounding: bytes, *, site: Any, form: Form[Any]
    ) -> None:
        super().__init__(papers, ledger, rounding)
        self._site, self._exchanges = site, {e.name: e for e in form.exchanges}
        self._latest = (0, 0)  # (exchange, round) of the last Ask accepted
        self._repeat: tuple[bytes | None, list[Parcel]] = (None, [])
        # What this client sealed for others, until the others' boxes come back in the same round.
        self._summed: tuple[int, tuple[str, ...]] = (-1, ())  # round and cohort of the last sum
        self._halves: dict[str, bytes] = {}
        papers.pairs.clear()  # a new session agrees on new secrets (O6)
        self._boxed: dict[type[Message], tuple[int, tuple[str, int, str]]] = {}
        if not any(item.id == "key.offer" for item in papers.plan.items):
            self.move(Event.BEGIN)

    def receive(self, data: bytes) -> list[Parcel]:
        """Take one envelope, return what leaves in answer; the ledger is durable by then.

        The very same bytes again get the very same answer. Bytes that are not authentic raise
        and change nothing; an authentic envelope that cannot be answered gets one refusal and
        ends the session.

        Raises:
            RemoteProtocolError: not authentic, a replay, or for another run or party.
            LedgerError: the record could not be written; nothing is returned, nothing leaves.
        """
        self.alive()
        if data == self._repeat[0]:
            return self._repeat[1]
        letter = self._inbox.open(data)
        try:
            replies = self._handle(letter)
        except LedgerError as error:
            self.die(error)
            raise
        except Exception as error:
            replies = [self._refuse(error, letter)]
        try:
            self.ledger.commit()
        except LedgerError as error:
            self.die(error)
            raise
        self._repeat = (data, replies)
        return replies

    def die(self, error: Exception) -> None:
        """End the session for good and forget the pair secrets."""
        super().die(error)
        self.papers.pairs.clear()

    def close(self, result: Mapping[str, str] | None = None) -> None:
        """Forget the pair secrets, record the last entry and end."""
        self.papers.pairs.clear()
        super().close(result)

    def _refuse(self, error: Exception, letter: Letter) -> Parcel:
        header = letter.header
        where = Where(header.round, header.exchange, (), header.given, header.attempt)
        self.die(error)
        return self.refusal(error, self.papers.roster.one(Role.AGGREGATOR).name, where)

    def _handle(self, letter: Letter) -> list[Parcel]:
        if letter.item.id == "key.offer":
            return self._take_key(letter)
        if letter.item.id == "pair.down":
            return self._take_pairs(letter)
        name, _, direction = letter.item.id.rpartition(".")
        if direction != "down" or name not in self._exchanges:
            raise BadEnvelope("An envelope of this kind is not for a client.")
        self.move(Event.ASK)
        return self._answer(letter, self._exchanges[name])

    def _take_key(self, letter: Letter) -> list[Parcel]:
        (key,) = self._inbox.read(letter, (Key,))
        if not isinstance(key, Key) or self.papers.scheme is None:
            raise LocalProtocolError("This client has no encryption scheme for the offered key.")
        self.move(Event.KEY)
        try:
            self.papers.he_key = self.papers.scheme.load_public(key.public_key)
        except CryptoError as error:
            raise BadEnvelope("The offered public key is not usable.") from error
        facts = {"event": "received", "key": self.papers.he_key.key_id}
        self.ledger.record("key", facts)
        return [self._offer_secrets()] if self._pairs_up() else []

    def _pairs_up(self) -> bool:
        return any(item.id == "pair.down" for item in self.papers.plan.items)

    def _offer_secrets(self) -> Parcel:
        """Draw half of every pair's secret and seal it for the other client of the pair."""
        clients = self.papers.roster.clients
        self._halves = {name: entropy(32) for name in clients}
        rows = np.frombuffer(b"".join(self._halves[name] for name in clients), dtype=np.uint8)
        message = PairSecret(secret=rows.reshape(len(clients), 32))
        aggregator = self.papers.roster.one(Role.AGGREGATOR).name
        return self.send("pair.up.SEALED", [message], aggregator, Where())

    def _take_pairs(self, letter: Letter) -> list[Parcel]:
        """Open the others' halves, check who sealed them, and join each with our own."""
        self.move(Event.PAIR)
        papers, me = self.papers, self.name
        (boxes,) = self._inbox.read(letter, (Boxes,))
        if not isinstance(boxes, Boxes) or not self._halves:
            raise BadEnvelope("Pair secrets arrived that were not asked for.")
        place = (papers.run, 0, "pair.up.SEALED")
        clients, dims = papers.roster.clients, papers.plan.dims
        found = open_boxes(PairSecret, boxes.boxes, clients, papers.me, papers.roster, dims, place)
        theirs = dict(zip(clients, np.asarray(found.secret), strict=True))  # type: ignore[attr-defined]
        for peer in clients:
            if peer != me:
                mine, other = self._halves[peer], theirs[peer].tobytes()
                joined = mine + other if me < peer else other + mine
                papers.pairs[peer] = derive(joined, "pair", papers.run)
        self._halves = {}
        return []

    def _answer(self, letter: Letter, exchange: Exchange) -> list[Parcel]:
        kinds: tuple[type[Message], ...] = (Call, *wire_kinds(exchange.given))
        call, *given = self._inbox.read(letter, kinds)
        where = self._where(letter, call, given)
        if any(kind.disclosure is Disclosure.SUM for kind in exchange.back):
            self._one_cohort(where)
        arguments = [
            self._unbox(kind, message.boxes, where) if isinstance(message, Boxes) else message
            for kind, message in zip(exchange.given, given, strict=True)
        ]
        try:
            said = exchange.answer(self._site, *arguments)
        except ArithmeticError as error:
            raise UnfitMessage(
                f"Training failed in {exchange.name!r}: its numbers are no longer finite.",
                why="the step size is too large for these features",
                fix="lower model.lr, or scale the features; nothing was sent",
            ) from error
        messages = () if said is None else said if isinstance(said, tuple) else (said,)
        if {type(m) for m in messages} != set(exchange.back) or len(messages) != len(exchange.back):
            raise LocalProtocolError(f"The answer of {exchange.name!r} is not what it declares.")
        sender = letter.header.sender
        if not messages:
            return [self.send(f"{exchange.name}.ack", [Acknowledgement()], sender, where)]
        return self._send_each(exchange.name, messages, sender, where)

    def _send_each(
        self, name: str, messages: tuple[Message, ...], to: str, where: Where
    ) -> list[Parcel]:
        parcels = []
        for disclosure in dict.fromkeys(message.disclosure for message in messages):
            group = [message for message in messages if message.disclosure is disclosure]
            item = f"{name}.up.{disclosure}"
            parcels.append(self.send(item, group, to, where))
            if disclosure is Disclosure.SEALED:
                place = (where.round, (self.papers.run, where.exchange, item))
                self._boxed.update({type(message): place for message in group})
        return parcels

    def _where(self, letter: Letter, call: Message, given: list[Message]) -> Where:
        """Check cohort, order and digests of an Ask before anything is computed."""
        header, papers = letter.header, self.papers
        if (header.exchange <= self._latest[0]) or header.round < self._latest[1]:
            raise Replay("An Ask is older than one that was already answered.")
        if header.attempt != 1:
            raise BadEnvelope("A second attempt needs evidence that the first was not opened (O5).")
        if header.round > papers.plan.rounds:
            raise BadEnvelope("An Ask is for a round beyond the plan.")
        members = papers.roster.unmask(call.members) if isinstance(call, Call) else ()
        if self.name not in members:
            raise BadEnvelope("An Ask's cohort does not hold this client.")
        papers.policy.check_cohort(len(members))
        digest = cohort_digest(
            papers.run, papers.plan_digest, header.round, header.attempt, members
        )
        if header.cohort != digest:
            raise BadEnvelope("An Ask's cohort is not the one its header names.")
        shared = [m for m in (call, *given) if m.disclosure in SHARED]
        if header.given != given_digest(shared, papers.dims(letter.item)):
            raise BadEnvelope("An Ask's content is not what its header says was given.")
        self._latest = (header.exchange, header.round)
        return Where(header.round, header.exchange, members, header.given, header.attempt)

    def _one_cohort(self, where: Where) -> None:
        """Answer sums of one round for one cohort only: two would be subtracted (O5)."""
        round, members = self._summed
        if where.round == round and where.members != members:
            raise BadEnvelope("Two different cohorts are summed in one round (O5).")
        self._summed = (where.round, where.members)

    def _unbox(self, kind: type[Message], boxes: bytes, where: Where) -> Message:
        filled = self._boxed.pop(kind, None)  # boxes are handed on once
        if not by_peers(kind) or filled is None or filled[0] != where.round:
            raise BadEnvelope("Boxes arrived that this client's cohort did not fill in this round.")
        papers = self.papers
        return open_boxes(
            kind,
            boxes,
            where.members,
            papers.me,
            papers.roster,
            papers.plan.dims,
            filled[1],
        )
