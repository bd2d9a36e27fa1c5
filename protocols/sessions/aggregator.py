"""The aggregator's session: hands out Asks, adds what comes back, has blinded totals opened.

It never holds a secret key. Per round it keeps uploads only until the total is formed (O9).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crypto.errors import CryptoError
from crypto.samplers import entropy
from protocols.boxes import box_bytes
from protocols.control import (
    REFUSALS,
    Boxes,
    Call,
    Key,
    KeyCall,
    Opened,
    OpenRequest,
    PairSecret,
    Refusal,
)
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    Refused,
    RemoteProtocolError,
    Replay,
    UnfitMessage,
    WrongStage,
)
from protocols.forms import Form
from protocols.gateway import SHARED, given_digest
from protocols.inbox import Letter
from protocols.ledger import Ledger
from protocols.messages import Message
from protocols.papers import Papers, Where
from protocols.roster import Role
from protocols.rounds import Ask, Reply, Sealed
from protocols.sessions.base import Parcel, Session
from protocols.sessions.collection import Collection
from protocols.sessions.table import Event, State
from protocols.views import HandedView


class AggregatorSession(Session):
    """AGGREGATOR: drives the run. ``outgoing = ask(...)``, then receive and advance until empty.

    Args:
        papers, ledger, rounding: see :class:`Session`.
        form: the admitted form.
    """

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes, form: Form[Any]) -> None:
        super().__init__(papers, ledger, rounding)
        self._form, self._exchange_number = form, 0
        self._key_envelope: bytes | None = None
        self._collection: Collection | None = None
        self._halves: dict[str, bytes] = {}
        self._paired = False
        self._reply: Reply | None = None
        if not self._encrypts():
            self.move(Event.BEGIN)

    def _encrypts(self) -> bool:
        return any(item.id == "key.call" for item in self.papers.plan.items)

    def start(self) -> list[Parcel]:
        """Return what must be sent before the first Ask (the call for a key, if any)."""
        self.alive()
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
        try:
            return self._ask(ask, round)
        except Exception as error:
            self.die(error)
            raise

    def _ask(self, ask: Ask, round: int) -> list[Parcel]:
        if late := self._unpaired():
            raise RemoteProtocolError(
                f"{len(late)} clients sent no pair secrets ({', '.join(late[:5])}).",
                why="a client is not reachable, or ended its session",
                fix="start the run again when all clients are there",
            )
        exchange, members = self._form.find(ask), ask.cohort._members
        self.papers.policy.check_cohort(len(members))
        self.move(Event.ASK)
        self._exchange_number += 1
        item = self.papers.plan.item(f"{exchange.name}.down")
        call = Call(members=self.papers.roster.mask(members), nonce=entropy(16))
        messages = [given for given in ask.handed if isinstance(given, Message)]
        shared = [call, *(message for message in messages if message.disclosure in SHARED)]
        given = given_digest(shared, self.papers.dims(item))
        where = Where(round, self._exchange_number, members, given)
        self._collection, self._reply = Collection(self.papers, exchange, where), None
        return self._out(
            [
                self.send(item.id, [call, *self._parts(ask.handed, member)], member, where)
                for member in members
            ]
        )

    def _parts(self, handed: Sequence[Message | Sealed], member: str) -> list[Message]:
        parts: list[Message] = []
        for given in handed:
            part = given._parcels[member] if isinstance(given, Sealed) else given
            parts.append(Boxes(boxes=part) if isinstance(part, bytes) else part)
        return parts

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
        letter = self._inbox.open(data)  # its receipt is made durable by the next advance()
        item = letter.item.id
        if item.startswith("refusal."):
            (refusal,) = self._inbox.read(letter, (Refusal,))
            code = refusal.code if isinstance(refusal, Refusal) else 0
            error = Refused(letter.header.sender, REFUSALS[min(code, len(REFUSALS) - 1)])
            self._out([])  # the refusal that ends the run stands in the ledger
            self.die(error)
            raise error
        if item == "key.offer":
            self._take_key(letter, data)
        elif item == "pair.up.SEALED":
            self._take_half(letter)
        elif item.endswith(".opened"):
            self._take_opened(letter)
        else:
            self._take_answer(letter)

    def _take_key(self, letter: Letter, data: bytes) -> None:
        (key,) = self._inbox.read(letter, (Key,))
        if not isinstance(key, Key) or self.papers.scheme is None:
            raise LocalProtocolError("This aggregator has no encryption scheme for the key.")
        self.move(Event.KEY)
        try:
            self.papers.he_key = self.papers.scheme.load_public(key.public_key)
        except CryptoError as error:  # SecretKeyRefused among them: fail closed, for good
            self.die(error)
            raise BadEnvelope(f"The offered public key is not usable: {error}") from error
        self._key_envelope = data

    def _take_answer(self, letter: Letter) -> None:
        if self.state is not State.ASKED:
            raise WrongStage("An answer arrived while nothing was asked.")
        self._asked.add(letter)

    @property
    def _asked(self) -> Collection:
        if self._collection is None:
            raise LocalProtocolError("Nothing was asked.")
        return self._collection

    def advance(self) -> list[Parcel]:
        """Return what must be sent next; empty when the Ask is answered or answers are missing."""
        self.alive()
        if self._key_envelope is not None:
            data, self._key_envelope = self._key_envelope, None
            return self._out([Parcel(client, data) for client in self.papers.roster.clients])
        if self._halves and not self._unpaired():
            return self._out(self._hand_on())
        if self.state is not State.ASKED or self._asked.missing():
            return self._out([])
        try:
            if self._asked.encrypted:
                self.move(Event.COLLECTED)
                return self._out([self._request()])
            self._reply = self._asked.reply(self._asked.clear_total())
        except (CryptoError, UnfitMessage) as error:
            self.die(error)
            raise BadEnvelope("An upload cannot be added up.") from error
        except Exception as error:
            self.die(error)
            raise
        self.move(Event.ANSWERED)
        return self._out([])

    def _unpaired(self) -> list[str]:
        """Return the clients whose pair secrets are planned and not here."""
        if self._paired or not any(item.id == "pair.down" for item in self.papers.plan.items):
            return []
        return [name for name in self.papers.roster.clients if name not in self._halves]

    def _take_half(self, letter: Letter) -> None:
        header = letter.header
        if (header.round, header.exchange, header.attempt) != (0, 0, 1):
            raise WrongStage("Pair secrets belong before the first round.")
        if self._paired or header.sender in self._halves:
            raise Replay("This client's pair secrets are here already.")
        self.move(Event.PAIR)
        self._halves[header.sender] = letter.body

    def _hand_on(self) -> list[Parcel]:
        """Hand every client the boxes that the others sealed for it; nobody here can open them."""
        size = box_bytes(PairSecret, self.papers.plan.dims)
        sealed: Sealed = HandedView(PairSecret, self._halves, size).read("handed")
        self._halves, self._paired = {}, True
        return [
            self.send("pair.down", self._parts([sealed], client), client, Where())
            for client in self.papers.roster.clients
        ]

    def _request(self) -> Parcel:
        """Ask the authority to open the blinded total; only this session can take the blind off."""
        asked = self._asked
        total, headers = asked.blinded()
        item = self.papers.plan.item(f"{asked.exchange.name}.open")
        padded = headers.ljust(item.dims["he_headers"], b"\0")
        request = OpenRequest(total=total, headers=padded)
        authority = self.papers.roster.one(Role.KEY_AUTHORITY).name
        return self.send(item.id, [request], authority, asked.where)

    def _take_opened(self, letter: Letter) -> None:
        if self.state is not State.OPENING:
            raise WrongStage("An opened total arrived while none was asked for.")
        asked = self._asked
        if letter.item.id != f"{asked.exchange.name}.opened":
            raise WrongStage("An opened total belongs to another exchange.")
        asked.check_place(letter)
        (opened,) = self._inbox.read(letter, (Opened,))
        if not isinstance(opened, Opened):
            raise BadEnvelope("An opened total is of another type.")
        try:
            self._reply = asked.reply(asked.opened(opened.total))
        except (CryptoError, UnfitMessage) as error:
            self.die(error)
            raise RemoteProtocolError(
                "The key authority returned something that is no total of this cohort."
            ) from error
        self.move(Event.OPEN)

    def reply(self) -> Reply:
        """Return what the last Ask brought back; raises RemoteProtocolError if answers miss."""
        self.alive()
        if self._reply is None:
            missing = self._asked.missing()
            raise RemoteProtocolError(
                f"{len(missing)} of {len(self._asked.where.members)} clients did not answer"
                f" ({', '.join(missing[:5])}).",
                why="a client is not reachable, or ended its session",
                fix="start the run again when all clients are there",
            )
        return self._reply
