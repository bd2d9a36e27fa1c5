"""The aggregator's session while the keys of an epoch are agreed on.

It relays what it cannot open: the authority's public key to everyone, and the clients' boxes to
each other (protocols.keys.pairs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from crypto.errors import CryptoError
from protocols.disclosures._evaluated.ciphers import key_kinds, keyed, raw_key
from protocols.errors import BadEnvelope, LocalProtocolError, RemoteProtocolError, WrongStage
from protocols.evidence.ledger import Ledger
from protocols.keys.groups import epoch_of
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.sessions.engine import Outgoing, Parcel, Session, Stream
from protocols.sessions.services.setup import Phase, Setup
from protocols.sessions.table import Event, State
from protocols.wire.control import KeyCall, PairBoxes, PairCall, PairDown, PairRows
from protocols.wire.inbox import Letter
from protocols.wire.roster import Role
from protocols.wire.run_context import Papers, Where


class KeyingSession(Session):
    """What the aggregator does before the first Ask of every epoch."""

    batch: int | None = None
    """Of how many envelopes large exchanges are made at a time; None: of all. See `Stream`."""

    apart = Session.apart | {"outcome", "_reply"}

    def handler(self, letter: Letter) -> Callable[..., Any]:
        """Return what takes an envelope."""
        found = self.takes.get((letter.item.part, letter.item.step))
        if found is None:
            raise BadEnvelope(f"An envelope of this kind is not for a {self.role}.")
        return cast(Callable[..., Any], getattr(self, found.__name__))

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        super().__init__(papers, ledger, rounding)
        self._exchange_number = 0
        self._outstanding: list[Parcel] = []  # sent last, perhaps unanswered
        self._key_envelope: bytes | None = None
        self._setup: Setup | None = None
        if not (self._enciphered or self._paired):
            self.move(Event.BEGIN)

    @property
    def _enciphered(self) -> bool:
        """Whether a key authority makes keys for this run."""
        return self.papers.plans("", Service.KEYS, Step.CALL)

    @property
    def _paired(self) -> bool:
        """Whether clients agree on pair secrets in this run."""
        return self.papers.plans("", Service.PAIRS, Step.CALL)

    def start(self) -> Outgoing:
        """Return what must be sent before the first Ask (keys of the first epoch, if any)."""
        return self.prepare(0)

    def prepare(self, round: int) -> Outgoing:
        """Begin an epoch if `round` is in a new one; returns what must be sent, else nothing.

        Raises:
            RemoteProtocolError: the last epoch's keys were not agreed on by enough clients.
        """
        self.alive()
        try:
            return self._prepare(round)
        except Exception as error:
            self.die(error)
            raise

    def _prepare(self, round: int) -> Outgoing:
        epoch = epoch_of(round, self.papers.policy)
        keyed = self._enciphered or self._paired
        if not keyed or (self._setup is not None and self._setup.epoch == epoch):
            return []
        self.move(Event.SETUP)
        if self._setup is not None and self._setup.exchange == self._exchange_number:
            self._exchange_number += 1  # no Ask came in between
        self._setup = setup = Setup(self.papers, epoch, round, self._exchange_number)
        if not self._enciphered:
            return self._out(self._set_up(setup))
        authority = self.papers.roster.one(Role.KEY_AUTHORITY).name
        item = self.papers.find("", Service.KEYS, Step.CALL)
        return self._out([self.send(item, [KeyCall()], authority, self._place(setup))])

    def _place(self, setup: Setup) -> Where:
        return Where(round=setup.round, exchange=setup.exchange)

    def _set_up(self, setup: Setup) -> Iterable[Parcel]:
        """Return the next envelopes of an epoch's keys; nothing when they are agreed on."""
        if setup.phase is Phase.KEY and self._enciphered:
            data, self._key_envelope = self._key_envelope, None
            if data is None:
                raise RemoteProtocolError(
                    "The key authority sent no key.", fix="start the run again when it is there"
                )
            setup.phase = Phase.CALL
            witnesses = sorted(self.papers.roster.names(Role.WITNESS))
            return [Parcel(name, data) for name in (*self.papers.roster.clients, *witnesses)]
        if setup.phase in (Phase.KEY, Phase.CALL) and self._paired:
            setup.phase = Phase.BOXES
            call = PairCall(members=self.papers.roster.mask(setup.group.called))
            return self._to(setup.group.called, Step.CALL, lambda _: call)
        if setup.phase is Phase.BOXES:
            return self._hand_on(setup)
        if setup.phase is Phase.ROWS:
            setup.forget_boxes()
            self._enough(setup.ready)
        setup.phase = Phase.DONE
        self.move(Event.BEGIN)
        return []

    def _hand_on(self, setup: Setup) -> Iterable[Parcel]:
        """Hand every client the boxes that the others sealed for it; nobody here can open them."""
        self._enough(setup.boxed)
        setup.phase = Phase.ROWS
        there = self.papers.roster.mask(setup.boxed)
        return self._to(
            setup.boxed,
            Step.DOWN,
            lambda name: PairDown(members=there, boxes=setup.boxes_for(name)),
        )

    def _to(
        self, names: Sequence[str], step: Step, message: Callable[[str], Message]
    ) -> Iterable[Parcel]:
        setup, item = self._agreed, self.papers.find("", Service.PAIRS, step)
        return (self.send(item, [message(n)], n, self._place(setup)) for n in names)

    def _enough(self, names: Sequence[str]) -> None:
        late = sorted(set(self.papers.roster.clients) - set(names))
        if len(names) < self.papers.policy.smallest_cohort:
            raise RemoteProtocolError(
                f"{len(late)} clients did not agree on this epoch's secrets"
                f" ({', '.join(late[:5])}).",
                why="a client is not reachable, or ended its session",
                fix="start the run again when enough clients are there",
            )

    @property
    def _agreed(self) -> Setup:
        if self._setup is None:
            raise LocalProtocolError("No keys were agreed on yet.")
        return self._setup

    def _keyed(self, letter: Letter, event: Event) -> Setup:
        setup, header = self._setup, letter.header
        if setup is None or self.state is not State.KEYING:
            raise WrongStage("Keys arrived while none are being agreed on.")
        if (header.round, header.exchange, header.attempt) != (setup.round, setup.exchange, 1):
            raise WrongStage("Keys belong to another epoch than the one being set up.")
        self.move(event)
        return setup

    def _take_pairs(self, letter: Letter) -> None:
        kind = PairBoxes if letter.item.step is Step.BOXES else PairRows
        (message,) = self._inbox.read(letter, (kind,))
        setup, sender = self._keyed(letter, Event.PAIR), letter.header.sender
        if isinstance(message, PairBoxes):
            setup.take_boxes(sender, message.boxes)
        elif isinstance(message, PairRows):
            setup.take_rows(sender, message.rows)

    def _take_key(self, letter: Letter) -> None:
        secret = keyed(self.papers.plan.items, self.papers.policy)
        messages = self._inbox.read(letter, key_kinds(secret))
        self._keyed(letter, Event.KEY)
        try:
            for disclosure, message in zip(secret, messages, strict=True):
                self.papers.take_key(disclosure, raw_key(disclosure, message))
        except CryptoError as error:  # SecretKeyRefused among them: fail closed, for good
            self.die(error)
            raise BadEnvelope(f"The offered public key is not usable: {error}") from error
        self._key_envelope = letter.envelope.encode()  # handed on as it came

    def _out(self, made: Iterable[Parcel]) -> Outgoing:
        """Make what leaves durable; where no state is kept, as `Stream` does, if that was asked."""
        if self.batch and self.keeper is None and not isinstance(made, list):
            self._outstanding = []
            return Stream(self, made, self.batch)
        try:
            self._outstanding = list(made)
            self.commit()
        except Exception as error:
            self.die(error)
            raise
        return self._outstanding
