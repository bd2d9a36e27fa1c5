"""The client's session: checks what it is asked, lets the algorithm answer, releases the answer."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.plan import wire_kinds
from protocols.disclosures._evaluated.ciphers import shape_of
from protocols.disclosures._evaluated.uploads import opened_message, row_info
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, LocalProtocolError, Replay, UnfitMessage
from protocols.evidence.heads import Spoken, check_place, client_items
from protocols.evidence.ledger import Ledger
from protocols.forms import Exchange, Form
from protocols.keys.boxes import by_peers, open_box, open_boxes
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.sessions.base import Parcel
from protocols.sessions.matching import MatchingSession
from protocols.sessions.table import Event
from protocols.wire.codec import pieces
from protocols.wire.cohorts import as_set
from protocols.wire.control import (
    Acknowledgement,
    Boxes,
    Call,
    CellTotals,
    Farewell,
    Listed,
    Place,
    Row,
)
from protocols.wire.envelope import Envelope, commitment
from protocols.wire.inbox import Letter
from protocols.wire.inputs_digest import SHARED, bytes_digest, given_digest
from protocols.wire.roster import Role, cohort_digest
from protocols.wire.run_context import Papers
from protocols.wire.where import Where


class ClientSession(MatchingSession):
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
        self._spoken = Spoken(client_items(papers.plan.items))
        self._weighed = -1  # round of the last message that may come back weighed
        self.learnt = 0  # how often the site may have changed
        # What this client sealed for others, until the others' boxes come back in the same round.
        self._boxed: dict[type[Message], tuple[int, tuple[str, int, str]]] = {}

    def _said(self, envelope: Envelope) -> None:
        """Note what leaves, to compare the aggregator's receipt with."""
        header = envelope.header
        self._spoken.add(header.exchange, header.item, commitment(envelope), header.head)

    def _refused(self, letter: Letter) -> Where:
        header = letter.header
        return Where(header.round, header.exchange, (), header.given, header.attempt)

    def _replies(self, letter: Letter, again: bool) -> list[Parcel]:
        if letter.item.exchange and letter.item.exchange not in self._exchanges:
            raise BadEnvelope("An envelope belongs to no Ask that this client knows.")
        replies: list[Parcel] = self.handler(letter)(letter)
        return replies

    def _answer(self, letter: Letter) -> list[Parcel]:
        """Answer an Ask."""
        self.move(Event.ASK)
        exchange = self._exchanges[letter.item.exchange]
        kinds: tuple[type[Message], ...] = (
            Call,
            Place,
            *wire_kinds(exchange.given, self.papers.policy),
        )
        call, place, *given = self._inbox.read(letter, kinds)
        where = self._where(letter, call, kinds)
        self._witness(call, place, where)
        if any(kind.disclosure is Disclosure.SUM for kind in exchange.back):
            self._check_sum(exchange.name, where)
        if self._enciphers(exchange):
            self._check_key(where)
        arguments = [
            self._argument(kind, message, exchange.name, where)
            for kind, message in zip(exchange.given, given, strict=True)
        ]
        self.learnt += 1
        recorder = self.recorder
        if recorder is not None and not recorder.wants(exchange, where.round):
            recorder = None
        before = recorder.before(arguments) if recorder is not None else b""
        self._open_training(exchange, where)
        try:
            said = exchange.answer(self._site, *arguments)
        except ArithmeticError as error:
            raise UnfitMessage(
                f"Training failed in {exchange.name!r}: its numbers are no longer finite.",
                why="the step size is too large for these features",
                fix="lower model.lr, or scale the features; nothing was sent",
            ) from error
        self._check_trained(exchange)
        messages = () if said is None else said if isinstance(said, tuple) else (said,)
        if {type(m) for m in messages} != set(exchange.back) or len(messages) != len(exchange.back):
            raise LocalProtocolError(f"The answer of {exchange.name!r} is not what it declares.")
        sender = letter.header.sender
        if not messages:
            item = self.papers.find(exchange.name, Service.ASK, Step.ACK)
            return [self.send(item, [Acknowledgement()], sender, where)]
        parcels = self._send_each(exchange.name, messages, sender, where)
        inside = self._gateway.inside()  # forgotten, whether it is captured or not
        if recorder is not None:
            envelopes = [parcel.data for parcel in parcels]
            recorder.sent(exchange.name, where, before, envelopes, self._gateway.groups, inside)
        return parcels

    def _take_leave(self, letter: Letter) -> list[Parcel]:
        """Take over the heads at the end of the run."""
        farewell, place = self._inbox.read(letter, (Farewell, Place))
        header = letter.header
        if header.given != given_digest([farewell], self.papers.dims(letter.item)):
            raise BadEnvelope("A farewell's content is not what its header says was given.")
        if header.exchange <= self._latest[0]:
            raise Replay("A farewell is older than an Ask that was answered.")
        self.move(Event.ASK)
        self._latest = (header.exchange, header.round)
        where = Where(header.round, header.exchange, (), header.given)
        self._witness(farewell, place, where)
        item = self.papers.find("", Service.HEADS, Step.ACK)
        return [self.send(item, [Acknowledgement()], header.sender, where)]

    def _witness(self, shared: Message, place: Message, where: Where) -> None:
        """Check the receipt of what this client said last; write down the root it stands under."""
        if not isinstance(shared, (Call, Farewell)) or not isinstance(place, Place):
            raise BadEnvelope("A receipt is missing.")
        line, missing = self._spoken.line(place.exchange, place.items)
        check_place(self.name, self.papers.roster.clients, line, place.proof, shared.heads)
        facts = {
            "exchange": where.exchange,
            "heard": place.exchange,
            "items": place.items,
            "missing": int(missing),
            "root": shared.heads.hex(),
            "round": where.round,
        }
        self.ledger.record("heads", facts)

    def _send_each(
        self, name: str, messages: tuple[Message, ...], to: str, where: Where
    ) -> list[Parcel]:
        parcels = []
        for disclosure in dict.fromkeys(message.disclosure for message in messages):
            group = [message for message in messages if message.disclosure is disclosure]
            item = self.papers.find(name, disclosure, Step.UP)
            parcels.append(self.send(item, group, to, where))
            if self.papers.enciphers(item):
                weighed = disclosure is Disclosure.WEIGHTED_SUM
                self._weighed = where.round if weighed else self._weighed
            if disclosure is Disclosure.SEALED:
                place = (where.round, (self.papers.run, where.exchange, item.id))
                self._boxed.update({type(message): place for message in group})
        return parcels

    def _where(self, letter: Letter, call: Message, kinds: tuple[type[Message], ...]) -> Where:
        """Check cohort, order and digests of an Ask before anything is computed."""
        header, papers = letter.header, self.papers
        if (header.exchange <= self._latest[0]) or header.round < self._latest[1]:
            raise Replay("An Ask is older than one that was already answered.")
        if header.attempt != 1:
            raise BadEnvelope("A second attempt needs evidence that the first was not opened (O5).")
        if header.round > papers.plan.rounds:
            raise BadEnvelope("An Ask is for a round beyond the plan.")
        members = papers.roster.unmask(call.members) if isinstance(call, Call) else ()
        if self.name not in as_set(members):
            raise BadEnvelope("An Ask's cohort does not hold this client.")
        papers.policy.check_cohort(len(members))
        digest = cohort_digest(
            papers.run, papers.plan_digest, header.round, header.attempt, members
        )
        if header.cohort != digest:
            raise BadEnvelope("An Ask's cohort is not the one its header names.")
        # The very bytes that came: what they decode to has no other encoding.
        data = pieces(kinds, letter.body, papers.dims(letter.item))
        shared = [(k, d) for k, d in zip(kinds, data, strict=True) if k.disclosure in SHARED]
        if header.given != bytes_digest(shared):
            raise BadEnvelope("An Ask's content is not what its header says was given.")
        self._latest = (header.exchange, header.round)
        slot = call.slot if isinstance(call, Call) else 0
        return Where(header.round, header.exchange, members, header.given, header.attempt, slot)

    def _enciphers(self, exchange: Exchange) -> bool:
        """Tell whether an answer is computed on while it is encrypted."""
        papers, name = self.papers, exchange.name
        said = [papers.find(name, kind.disclosure, Step.UP) for kind in exchange.back]
        return any([papers.enciphers(item) for item in said])

    def _argument(self, kind: type[Message], message: Message, name: str, where: Where) -> Message:
        """Return what a message is to the algorithm's answer: opened, if it came in a box."""
        if isinstance(message, Boxes):
            return self._unbox(kind, message.boxes, where)
        if isinstance(message, CellTotals | Listed):
            return self._found(kind, message, where)
        return self._combined(kind, message, name, where) if isinstance(message, Row) else message

    def _combined(self, kind: type[Message], row: Row, name: str, where: Where) -> Message:
        """Open this client's own row and take off its blind (O1)."""
        papers = self.papers
        if self._weighed != where.round:
            raise BadEnvelope(
                "A row arrived in a round in which this client gave nothing to weigh."
            )
        self._weighed = -1  # rows of one upload are handed out once
        info = row_info(papers.run, where.exchange, name, self.name)
        opened = open_box(row.box, papers.me, papers.roster.one(Role.KEY_AUTHORITY), info)
        shape = shape_of((kind,), papers.policy, papers.plan.dims)
        return opened_message(kind, shape, opened, row.seed)

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


_MATCHED = (Step.HALFWAY, Step.TAGGED, Step.TOLD, Step.MATES)

ClientSession.takes = {
    (Service.KEYS, Step.OFFER): ClientSession._take_key,
    (Service.PAIRS, Step.CALL): ClientSession._take_call,
    (Service.PAIRS, Step.DOWN): ClientSession._take_pairs,
    (Service.HEADS, Step.DOWN): ClientSession._take_leave,
    (Service.ASK, Step.DOWN): ClientSession._answer,
    (Disclosure.SUM, Step.SURVIVORS): ClientSession._vote,
    (Disclosure.SUM, Step.VOTES): ClientSession._give_shares,
    **{(Disclosure.MATCH, step): ClientSession._take_match for step in _MATCHED},
}
