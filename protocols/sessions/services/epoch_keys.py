"""The aggregator's part while the keys of an epoch are agreed on.

It relays what it cannot open: the authority's public key to everyone, and the clients' boxes to
each other (protocols.keys.pairs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from crypto.errors import CryptoError
from protocols.disclosures._evaluated.ciphers import key_kinds, keyed, raw_key
from protocols.errors import BadEnvelope, LocalProtocolError, RemoteProtocolError, WrongStage
from protocols.forms import Exchange
from protocols.keys.setup import KeyPhase, Setup
from protocols.keys.slots import epoch_of
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.sessions.drawing.aggregator import Drawing
from protocols.sessions.drawing.drawn import Drawn
from protocols.sessions.part import Delivery, Engine, Scope, SessionPart, Takes
from protocols.sessions.services.exchanges import Exchanges
from protocols.sessions.table import Event, State
from protocols.wire.cohorts import as_set
from protocols.wire.control import KeyCall, PairBoxes, PairCall, PairDown, PairRows
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role, takers
from protocols.wire.where import Where


class EpochKeys(SessionPart):
    """Agrees on keys before the first Ask of every epoch.

    Args:
        engine: the session.
        exchanges: numbers them.
        drawn: the run's cohorts, where lots draw them: each agrees on keys by itself.
        drawing: draws them before the first keys.
    """

    called: ClassVar[str] = "keys"

    def __init__(
        self, engine: Engine, exchanges: Exchanges, drawn: Drawn, drawing: Drawing
    ) -> None:
        super().__init__(engine)
        self._exchanges, self._drawn, self._drawing = exchanges, drawn, drawing
        self._setup: Setup | None = None

    def begin(self) -> None:
        """Be ready at once where no keys are needed."""
        if not self.needed:
            self._engine.move(Event.BEGIN)

    def forget(self, scope: Scope) -> None:
        """Drop locked rows, boxes and the key's envelope once the session is over (O9)."""
        if scope is Scope.RUN:
            self._setup = None

    @property
    def _enciphered(self) -> bool:
        """Whether a key authority makes keys for this run."""
        return self._context.plans("", Service.KEYS, Step.CALL)

    @property
    def needed(self) -> bool:
        """Whether anything is agreed on before an epoch's first Ask."""
        drawn = self._drawn.planned
        return self._enciphered or self.paired or (drawn is not None and drawn.by_lot)

    @property
    def paired(self) -> bool:
        """Whether clients agree on pair secrets in this run."""
        return self._context.plans("", Service.PAIRS, Step.CALL)

    def due(self, round: int) -> bool:
        """Tell whether a round is in an epoch that has not begun."""
        if self._setup is None:
            return self.needed
        return self.needed and self._setup.epoch != epoch_of(round, self._context.policy)

    def prepare(self, round: int) -> Iterable[Delivery]:
        """Begin the epoch of a round; return what must be sent."""
        self._engine.move(Event.SETUP)
        if self._drawing.wanted_first:
            return self._drawing.call(round)
        return self._begin(round)

    def _begin(self, round: int) -> Iterable[Delivery]:
        epoch = epoch_of(round, self._context.policy)
        if self._setup is not None and self._setup.exchange == self._exchanges.number:
            self._exchanges.next()  # no Ask came in between
        facts = epoch, round, self._exchanges.number
        within = self._drawn.within if self._drawn.cohorts else None
        self._setup = setup = Setup(self._context, *facts, self._drawn.cohorts, within)
        if not self._enciphered:
            return self._set_up(setup)
        authority = self._context.roster.one(Role.KEY_AUTHORITY).name
        item = self._context.find("", Service.KEYS, Step.CALL)
        return [self._engine.send(item, [KeyCall()], authority, self._place(setup))]

    def go_on(self) -> Iterable[Delivery]:
        """Return the next envelopes of an epoch's keys; nothing when they are agreed on."""
        if self._drawing.under_way:
            return self._drawing.go_on()
        return self._begin(self._drawing.round) if self.fresh else self._set_up(self.agreed)

    def _place(self, setup: Setup) -> Where:
        return Where(round=setup.round, exchange=setup.exchange)

    def _set_up(self, setup: Setup) -> Iterable[Delivery]:
        if setup.phase is KeyPhase.KEY and self._enciphered:
            data = setup.offer
            if not data:
                raise RemoteProtocolError(
                    "The key authority sent no key.", fix="start the run again when it is there"
                )
            setup.phase = KeyPhase.CALL
            roster = self._context.roster
            others = (r for r in takers(Service.KEYS, Step.OFFER) if r is not Role.AGGREGATOR)
            return [Delivery(n, data) for role in others for n in sorted(roster.names(role))]
        if setup.phase in (KeyPhase.KEY, KeyPhase.CALL) and self.paired:
            setup.phase = KeyPhase.BOXES
            mask = self._context.roster.mask
            calls = {group: PairCall(members=mask(group.called)) for group in setup.groups}
            names = sorted(name for group in setup.groups for name in group.called)
            return self._to(names, Step.CALL, lambda name: calls[setup.group_of((name,))])
        if setup.phase is KeyPhase.BOXES:
            return self._hand_on(setup)
        if setup.phase is KeyPhase.ROWS:
            setup.forget_boxes()
            self._enough(setup.ready)
        setup.phase = KeyPhase.DONE
        self._engine.move(Event.BEGIN)
        return []

    def _hand_on(self, setup: Setup) -> Iterable[Delivery]:
        """Hand every client the boxes that the others sealed for it; nobody here can open them."""
        self._enough(setup.handed)
        setup.phase = KeyPhase.ROWS
        mask = self._context.roster.mask
        there = {group: mask(setup.there(group)) for group in setup.groups}

        def down(name: str) -> PairDown:
            return PairDown(members=there[setup.group_of((name,))], boxes=setup.boxes_for(name))

        return self._to(setup.handed, Step.DOWN, down)

    def _to(
        self, names: Sequence[str], step: Step, message: Callable[[str], Message]
    ) -> Iterable[Delivery]:
        setup, item = self.agreed, self._context.find("", Service.PAIRS, step)
        return (self._engine.send(item, [message(n)], n, self._place(setup)) for n in names)

    def _enough(self, names: Sequence[str]) -> None:
        late = sorted(set(self._context.roster.clients) - set(names))
        if len(names) < self._context.policy.smallest_cohort:
            raise RemoteProtocolError(
                f"{len(late)} clients did not agree on this epoch's secrets"
                f" ({', '.join(late[:5])}).",
                why="a client is not reachable, or ended its session",
                fix="start the run again when enough clients are there",
            )

    @property
    def fresh(self) -> bool:
        """Whether no epoch has begun yet."""
        return self._setup is None

    def check(self, round: int) -> None:
        """Raise LocalProtocolError unless the keys of a round's epoch are agreed on."""
        if not self.needed:
            return
        epoch = epoch_of(round, self._context.policy)
        if self.agreed.phase is not KeyPhase.DONE or self.agreed.epoch != epoch:
            raise LocalProtocolError("This epoch's keys come before its first Ask.")

    def ready(self, cohort: Sequence[str]) -> Sequence[str]:
        """Return who of a cohort agreed on everything."""
        if not self.paired:
            return cohort
        there = as_set(self.agreed.ready)
        return [member for member in cohort if member in there]

    def again(self, name: str) -> list[Delivery]:
        """Return the epoch's public keys for a party that may be without them, else nothing.

        They are the very bytes that were handed out, and go before what rests on them: who has them
        says nothing to them, as it did the first time.
        """
        setup = self._setup
        return [Delivery(name, setup.offer)] if setup is not None and setup.lacks(name) else []

    def under(self, exchange: Exchange) -> bool:
        """Tell whether what an Ask brings back is under the epoch's public keys."""
        secret = keyed(self._context.plan.items, self._context.policy)
        return any(kind.disclosure in secret for kind in exchange.back)

    def taken_by(self, names: Iterable[str]) -> None:
        """Note who answered something that rests on the epoch's public keys."""
        if self._setup is not None:
            self._setup.taken_by(names)

    def missed_by(self, names: Iterable[str]) -> None:
        """Note who may be without the keys, and is handed them again with what it is asked next.

        A policy may encrypt sums of which a form has none: then nobody shows that it has the keys,
        and nobody needs them.
        """
        items, policy = self._context.plan.items, self._context.policy
        secret = keyed(items, policy)
        if self._setup is not None and any(i.step is Step.UP and i.part in secret for i in items):
            self._setup.missed_by(names)

    @property
    def agreed(self) -> Setup:
        """What was agreed on for this epoch, or is being agreed on."""
        if self._setup is None:
            raise LocalProtocolError("No keys were agreed on yet.")
        return self._setup

    def _keyed(self, incoming: Incoming, event: Event) -> Setup:
        setup, header = self._setup, incoming.header
        if setup is None or self._engine.state is not State.KEYING:
            raise WrongStage("Keys arrived while none are being agreed on.")
        if (header.round, header.exchange, header.attempt) != (setup.round, setup.exchange, 1):
            raise WrongStage("Keys belong to another epoch than the one being set up.")
        self._engine.move(event)
        return setup

    def _take_boxes(self, incoming: Incoming) -> None:
        boxes = self._engine.read_one(incoming, PairBoxes).boxes
        self._keyed(incoming, Event.PAIR).take_boxes(incoming.header.sender, boxes)

    def _take_rows(self, incoming: Incoming) -> None:
        rows = self._engine.read_one(incoming, PairRows).rows
        self._keyed(incoming, Event.PAIR).take_rows(incoming.header.sender, rows)

    def _take_key(self, incoming: Incoming) -> None:
        secret = keyed(self._context.plan.items, self._context.policy)
        messages = self._engine.read(incoming, key_kinds(secret))
        setup = self._keyed(incoming, Event.KEY)
        try:
            for disclosure, message in zip(secret, messages, strict=True):
                self._context.take_key(disclosure, raw_key(disclosure, message))
        except CryptoError as error:  # SecretKeyRefused among them: fail closed, for good
            self._engine.die(error)
            raise BadEnvelope(f"The offered public key is not usable: {error}") from error
        setup.offer = incoming.envelope.encode()  # handed on as it came

    takes: ClassVar[Takes] = {
        (Service.KEYS, Step.OFFER): _take_key,
        (Service.PAIRS, Step.BOXES): _take_boxes,
        (Service.PAIRS, Step.ROWS): _take_rows,
    }
