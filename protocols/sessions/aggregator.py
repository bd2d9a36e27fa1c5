"""The aggregator's session: hands out Asks, adds what comes back, has blinded totals opened.

It never holds a secret key. Per round it keeps uploads only until the total is formed (O9).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crypto.errors import CryptoError
from crypto.quantiser import Packing
from crypto.samplers import entropy
from protocols.boxes import box_bytes
from protocols.codec import decode
from protocols.control import REFUSALS, Boxes, Call, Key, KeyCall, Opened, OpenRequest, Refusal
from protocols.disclosures import Disclosure
from protocols.envelope import signed_header
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    Refused,
    RemoteProtocolError,
    UnfitMessage,
    WrongStage,
)
from protocols.gateway import Papers, Where, given_digest
from protocols.guards import find
from protocols.inbox import Letter
from protocols.ledger import Ledger
from protocols.messages import Message, Vector
from protocols.planning import integer_bytes, sum_layout
from protocols.roster import Role
from protocols.rounds import Ask, Exchange, Form, Reply, Sealed, View
from protocols.sessions.base import Parcel, Session
from protocols.sessions.table import Event, State
from protocols.sums import SumLayout
from protocols.views import ClearView, HandedView, TotalView


class AggregatorSession(Session):
    """AGGREGATOR: drives the run. ``outgoing = ask(...)``, then receive and advance until empty.

    Args:
        papers, ledger, rounding: see :class:`Session`.
        form: the admitted form.
    """

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes, form: Form[object]) -> None:
        super().__init__(papers, ledger, rounding)
        self._form, self._exchange_number = form, 0
        self._key_envelope: bytes | None = None
        self._exchange: Exchange | None = None
        self._where = Where()
        self._letters: dict[tuple[str, str], Letter] = {}
        self._blind = b""
        self._reply: Reply | None = None
        if not self._encrypts():
            self.move(Event.BEGIN)

    def _encrypts(self) -> bool:
        return any(item.id == "key.call" for item in self.papers.plan.items)

    def start(self) -> list[Parcel]:
        """Return what must be sent before the first Ask (the call for a key, if any)."""
        if not self._encrypts():
            return []
        authority = self.papers.roster.one(Role.KEY_AUTHORITY).name
        return self._out([self.send("key.call", [KeyCall()], authority, Where())])

    def ask(self, ask: Ask, round: int) -> list[Parcel]:
        """Begin an Ask: returns one envelope per cohort member.

        Raises:
            TypeError: the form declares no such exchange.
            CohortTooSmall: the cohort is below the policy's minimum.
            NotInPlan: not planned, or more often than planned.
        """
        self.alive()
        self._exchange = self._form.find(ask)
        members = ask.cohort._members
        self.papers.policy.check_cohort(len(members))
        self.move(Event.ASK)
        self._exchange_number += 1
        self._letters, self._reply = {}, None
        item = self.papers.plan.item(f"{self._exchange.name}.down")
        call = Call(members=self.papers.roster.mask(members))
        shared = [call, *(g for g in ask.handed if _released(g))]
        self._where = Where(
            round=round,
            exchange=self._exchange_number,
            members=members,
            given=given_digest([m for m in shared if isinstance(m, Message)], self._dims(item.id)),
        )
        return self._out(
            [
                self.send(item.id, [call, *self._parts(ask.handed, member)], member, self._where)
                for member in members
            ]
        )

    def _parts(self, handed: Sequence[Message | Sealed], member: str) -> list[Message]:
        parts: list[Message] = []
        for given in handed:
            part = given._parcels[member] if isinstance(given, Sealed) else given
            parts.append(Boxes(boxes=part) if isinstance(part, bytes) else part)
        return parts

    def _dims(self, item: str) -> dict[str, int]:
        return self.papers.dims(self.papers.plan.item(item))

    def _out(self, parcels: list[Parcel]) -> list[Parcel]:
        try:
            self.ledger.commit()
        except Exception as error:
            self.die(error)
            raise
        return parcels

    def receive(self, data: bytes) -> None:
        """Take one envelope.

        Raises:
            Refused: the sender refused; the session is over.
            RemoteProtocolError: not authentic (nothing changes), or not acceptable now.
        """
        self.alive()
        letter = self._inbox.open(data)
        self.ledger.commit()
        item = letter.item.id
        if item.startswith("refusal."):
            (refusal,) = self._inbox.read(letter, (Refusal,))
            code = refusal.code if isinstance(refusal, Refusal) else 0
            error = Refused(letter.header.sender, REFUSALS[min(code, len(REFUSALS) - 1)])
            self.die(error)
            raise error
        if item == "key.offer":
            self._take_key(letter, data)
        elif item.endswith(".opened"):
            self._take_opened(letter)
        else:
            self._take_answer(letter)

    def _take_key(self, letter: Letter, data: bytes) -> None:
        (key,) = self._inbox.read(letter, (Key,))
        if not isinstance(key, Key) or self.papers.scheme is None:
            raise LocalProtocolError("This aggregator has no encryption scheme for the key.")
        try:
            self.papers.he_key = self.papers.scheme.load_public(key.public_key)
        except CryptoError as error:  # SecretKeyRefused among them: fail closed, for good
            self.die(error)
            raise BadEnvelope(f"The offered public key is not usable: {error}") from error
        self.move(Event.KEY)
        self._key_envelope = data

    def _take_answer(self, letter: Letter) -> None:
        header, where = letter.header, self._where
        if self.state is not State.ASKED or self._exchange is None:
            raise WrongStage("An answer arrived while nothing was asked.")
        if not header.item.startswith(f"{self._exchange.name}."):
            raise WrongStage("An answer belongs to another exchange than the one asked.")
        places = (header.round, header.exchange, header.attempt)
        if places != (where.round, where.exchange, where.attempt):
            raise WrongStage("An answer belongs to another round than the one asked.")
        if header.sender not in where.members or header.cohort != self.papers.cohort(where):
            raise BadEnvelope("An answer is not from this cohort.")
        if header.given != where.given:
            raise BadEnvelope("A client was given something else than the others (O8).")
        key = self.papers.he_key
        if letter.item.disclosure is Disclosure.SUM and key and header.key != key.key_id[:16]:
            raise BadEnvelope("An upload was made under another key.")
        self._letters[header.sender, header.item] = letter

    def advance(self) -> list[Parcel]:
        """Return what must be sent next; empty when the Ask is answered or answers are missing."""
        self.alive()
        if self._key_envelope is not None:
            data, self._key_envelope = self._key_envelope, None
            return [Parcel(client, data) for client in self.papers.roster.clients]
        if self.state is not State.ASKED or self.missing():
            return []
        try:
            return self._out(self._collect())
        except (CryptoError, UnfitMessage) as error:
            self.die(error)
            raise BadEnvelope("An upload cannot be added up.") from error

    def missing(self) -> tuple[str, ...]:
        """Return the cohort members whose answers have not all arrived."""
        items = self._expected()
        return tuple(
            m for m in self._where.members if any((m, i) not in self._letters for i in items)
        )

    def _expected(self) -> list[str]:
        if self._exchange is None:
            return []
        name = self._exchange.name
        kinds = dict.fromkeys(kind.disclosure for kind in self._exchange.back)
        return [f"{name}.up.{d}" for d in kinds] or [f"{name}.ack"]

    def _collect(self) -> list[Parcel]:
        chain = self.papers.policy.rules.get(Disclosure.SUM, ())
        sums = any(item.endswith(f".{Disclosure.SUM}") for item in self._expected())
        if sums and find(chain, "he"):
            self.move(Event.COLLECTED)
            return [self._blinded()]
        self._finish(self._clear_total() if sums else None)
        self.move(Event.ANSWERED)
        return []

    def _bodies(self, disclosure: Disclosure) -> dict[str, bytes]:
        item = f"{self._name}.up.{disclosure}"
        return {m: self._letters[m, item].body for m in self._where.members}

    def _blinded(self) -> Parcel:
        """Add the uploads and a uniform blind (O1); keep only the blind's seed and the headers."""
        papers = self.papers
        if papers.scheme is None or papers.he_key is None:
            raise LocalProtocolError("The key authority's public key is not here yet.")
        total = papers.scheme.accumulator(papers.he_key)
        for body in self._bodies(Disclosure.SUM).values():
            total.add(body)
        self._blind = entropy(32)
        total.add_plain(papers.scheme.blind(self._blind, total.coefficients))
        item = f"{self._name}.up.{Disclosure.SUM}"
        envelopes = [self._letters[m, item].envelope for m in self._where.members]
        headers = b"".join(signed_header(envelope) for envelope in envelopes)
        size = self._dims(f"{self._name}.open")["he_headers"]
        request = OpenRequest(total=total.to_bytes(), headers=headers.ljust(size, b"\0"))
        for member in self._where.members:
            del self._letters[member, item]
        authority = papers.roster.one(Role.KEY_AUTHORITY).name
        return self.send(f"{self._name}.open", [request], authority, self._where)

    def _take_opened(self, letter: Letter) -> None:
        header, where, papers = letter.header, self._where, self.papers
        places = (header.round, header.exchange, header.attempt)
        if self.state is not State.OPENING or letter.item.id != f"{self._name}.opened":
            raise WrongStage("An opened total arrived while none was asked for.")
        if places != (where.round, where.exchange, where.attempt):
            raise WrongStage("An opened total belongs to another round.")
        if header.cohort != papers.cohort(where) or papers.scheme is None:
            raise BadEnvelope("An opened total belongs to another cohort.")
        (opened,) = self._inbox.read(letter, (Opened,))
        if not isinstance(opened, Opened):
            raise BadEnvelope("An opened total is of another type.")
        layout = self._layout()
        packing = Packing(layout.bits, len(papers.plan.clients), papers.scheme.plain_bits)
        try:
            values = np.frombuffer(opened.total, dtype="<u8")
            plain = papers.scheme.subtract(values, papers.scheme.blind(self._blind, values.size))
            used = packing.coefficients(layout.length)
            self._finish(packing.unpack(plain[:used], layout.length))
        except (CryptoError, UnfitMessage) as error:
            self.die(error)
            raise RemoteProtocolError(
                "The key authority returned something that is no total of this cohort."
            ) from error
        self._blind = b""
        self.move(Event.OPEN)

    def _layout(self) -> SumLayout:
        kinds = [k for k in self._asked.back if k.disclosure is Disclosure.SUM]
        chain = self.papers.policy.chain(Disclosure.SUM)
        return sum_layout(kinds, chain, self._dims(f"{self._name}.up.{Disclosure.SUM}"))

    def _clear_total(self) -> Vector:
        """Add the integers that an Unsafe chain brought in clear: the same vector as under he."""
        layout = self._layout()
        dtype = f"<u{integer_bytes(layout.bits)}"
        total = np.zeros(layout.length, dtype=np.uint64)
        for body in self._bodies(Disclosure.SUM).values():
            total += np.frombuffer(body, dtype=dtype)
        return total

    def _finish(self, total: Vector | None) -> None:
        """Build the Reply: one view per message type that came back."""
        views: dict[type[Message], View] = {}
        if total is not None:
            totals = self._layout().decode(total, len(self._where.members))
            views.update({kind: TotalView(message) for kind, message in totals.items()})
        for kind in self._asked.back:
            if kind.disclosure is not Disclosure.SUM:
                views[kind] = self._view(kind)
        self._letters.clear()
        self._reply = Reply(views)

    def _view(self, kind: type[Message]) -> View:
        kinds = tuple(k for k in self._asked.back if k.disclosure is kind.disclosure)
        item = f"{self._name}.up.{kind.disclosure}"
        bodies, dims = self._bodies(kind.disclosure), self._dims(item)
        if kind.disclosure is Disclosure.SEALED:
            return self._handed(kind, kinds, bodies, dims)
        place = kinds.index(kind)
        sent = {member: decode(kinds, body, dims)[place] for member, body in bodies.items()}
        return ClearView(kind, sent, dims)

    def _handed(
        self,
        kind: type[Message],
        kinds: tuple[type[Message], ...],
        bodies: dict[str, bytes],
        dims: dict[str, int],
    ) -> View:
        clients, boxes, start = self.papers.roster.clients, {}, 0
        for before in kinds[: kinds.index(kind)]:
            start += box_bytes(before, dims) * len(clients)
        size = box_bytes(kind, dims)
        absent = bytes(size * len(clients))
        for client in clients:
            body = bodies.get(client)
            boxes[client] = absent if body is None else body[start : start + size * len(clients)]
        return HandedView(kind, boxes, size)

    @property
    def _asked(self) -> Exchange:
        if self._exchange is None:
            raise LocalProtocolError("Nothing was asked.")
        return self._exchange

    @property
    def _name(self) -> str:
        return self._asked.name

    def reply(self) -> Reply:
        """Return what the last Ask brought back; raises RemoteProtocolError if answers miss."""
        if self._reply is None:
            missing = self.missing()
            raise RemoteProtocolError(
                f"{len(missing)} of {len(self._where.members)} clients did not answer"
                f" ({', '.join(missing[:5])}).",
                why="a client is not reachable, or ended its session",
                fix="start the run again when all clients are there",
            )
        return self._reply


def _released(given: Message | Sealed) -> bool:
    return isinstance(given, Message) and given.disclosure is Disclosure.RELEASED
