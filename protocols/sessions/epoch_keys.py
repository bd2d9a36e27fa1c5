"""An epoch's keys: at the aggregator, paired at clients, held at the authority (O6, O9)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from crypto.errors import CryptoError
from crypto.homomorphic.he import SecretKey
from protocols.disclosures._evaluated.ciphers import key_kinds, key_message, keyed, raw_key, ring_of
from protocols.disclosures.names import Disclosure
from protocols.errors import (
    BadEnvelope,
    LedgerError,
    LocalProtocolError,
    RemoteProtocolError,
    Replay,
    WrongStage,
)
from protocols.forms import Exchange
from protocols.keys.groups import Group, epoch_of, slots
from protocols.keys.pairs import CommonKey, Pairs
from protocols.keys.setup import KeyPhase, Setup, width_of
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.sessions.asking import Exchanges
from protocols.sessions.drawing import Drawing, Drawn
from protocols.sessions.engine import Answering, Progress
from protocols.sessions.part import Delivery, Engine, Event, Scope, SessionPart, State, Takes
from protocols.wire.control import KeyCall, PairBoxes, PairCall, PairDown, PairRows
from protocols.wire.envelope import Where, beginning
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role, takers
from protocols.wire.roster import EVERYONE, as_set

# --- The aggregator's part while the keys of an epoch are agreed on ---
#
# It relays what it cannot open: the authority's public key to everyone, and the clients' boxes to
# each other (protocols.keys.pairs).


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


# --- A client's pair secrets of an epoch, agreed on with its neighbours (O6) ---


class PairSecrets(SessionPart):
    """Agrees on an epoch's secrets; the run's context holds them while the session lives.

    Args:
        engine: the session.
        progress: how far this client is.
        drawn: the run's cohorts, where lots draw them: keys are agreed on in one's own.
    """

    called: ClassVar[str] = "pairs"

    def __init__(self, engine: Engine, progress: Progress, drawn: Drawn) -> None:
        super().__init__(engine)
        self._progress, self._drawn, self.epoch = progress, drawn, -1

    def begin(self) -> None:
        """Begin without secrets: a new session agrees on new ones (O6)."""
        self._context.pairs = None
        if not any(i.part in (Service.KEYS, Service.PAIRS) for i in self._context.plan.items):
            self._engine.move(Event.BEGIN)

    def forget(self, scope: Scope) -> None:
        """Drop the secrets once the session is over."""
        if scope is Scope.RUN:
            self._context.pairs = None

    def agreed(self, round: int) -> Pairs | None:
        """Return the secrets of a round's epoch; None if they are not here."""
        current = epoch_of(round, self._context.policy) == self.epoch
        return self._context.pairs if current else None

    def _take_call(self, incoming: Incoming) -> list[Delivery]:
        """Draw this epoch's secrets; seal for each neighbour its half and its shares."""
        context = self._context
        call = self._engine.read_one(incoming, PairCall)
        all_pairs = self._drawn.planned is None
        if not all_pairs and not self._drawn.cohorts:
            return []  # what lots drew never came here: this client sits the run out
        epoch = self._progress.new_epoch(incoming, self.epoch)
        self._engine.move(Event.PAIR)
        called = context.roster.unmask(call.members)
        if called != (context.roster.clients if all_pairs else self._drawn.of(self._engine.name)):
            # Who chose the called could choose everybody's neighbours.
            raise BadEnvelope(
                "A call for an epoch's keys does not name all clients, or the cohort."
            )
        self._engine.forget(Scope.EPOCH)
        within = self._drawn.within if self._drawn.cohorts else None
        group = Group.of(context.run, epoch, called, context.policy, within)
        facts = context.plan.items, context.plan.rounds, context.policy, epoch
        places, alone = slots(*facts), slots(*facts, Disclosure.NEIGHBOUR_SUM)
        width = width_of(context)
        common = CommonKey() if context.pairs is None else context.pairs.common
        who = context.me, context.roster
        context.pairs = Pairs(*who, group, places, width, common, alone)
        self.epoch = epoch
        return [self._control(Step.BOXES, PairBoxes(boxes=context.pairs.boxes()), incoming)]

    def _take_pairs(self, incoming: Incoming) -> list[Delivery]:
        """Open the neighbours' boxes, check who sealed them, and leave the locked rows."""
        self._engine.move(Event.PAIR)
        context = self._context
        down = self._engine.read_one(incoming, PairDown)
        epoch = epoch_of(incoming.header.round, context.policy)
        if context.pairs is None or epoch != self.epoch:
            raise BadEnvelope("Pair secrets arrived that were not asked for.")
        there = context.roster.unmask(down.members)
        context.policy.check_cohort(len(there))
        context.pairs.take(down.boxes, there)
        return [self._control(Step.ROWS, PairRows(rows=context.pairs.rows()), incoming)]

    def _control(self, step: Step, message: PairBoxes | PairRows, incoming: Incoming) -> Delivery:
        header = incoming.header
        where = Where(round=header.round, exchange=header.exchange)
        item = self._context.find("", Service.PAIRS, step)
        return self._engine.send(
            item, [message], self._context.roster.one(Role.AGGREGATOR).name, where
        )

    takes: ClassVar[Takes] = {
        (Service.PAIRS, Step.CALL): _take_call,
        (Service.PAIRS, Step.DOWN): _take_pairs,
    }


# --- An epoch's public keys where they are used: at clients and witnesses ---


class PublicKeys(SessionPart):
    """Takes the key authority's keys, once an epoch (O9).

    Args:
        engine: the session.
        progress: how far this party is.
        answering: says the same to the very same keys, however often they come.
    """

    called: ClassVar[str] = "keys"

    def __init__(self, engine: Engine, progress: Progress, answering: Answering) -> None:
        super().__init__(engine)
        self._progress, self._answering, self.epoch = progress, answering, -1

    def _take_key(self, incoming: Incoming) -> list[Delivery]:
        """Check the epoch's public keys, keep them and write down which they are.

        Raises:
            BadEnvelope: one of them is not usable.
        """
        context = self._context
        epoch = epoch_of(incoming.header.round, context.policy)
        if epoch <= self.epoch:
            raise BadEnvelope("Keys arrived for an epoch that has its keys already (O9).")
        self.epoch = epoch
        self._engine.move(Event.KEY)
        secret = keyed(context.plan.items, context.policy)
        messages = self._engine.read(incoming, key_kinds(secret))
        for disclosure, message in zip(secret, messages, strict=True):
            try:
                key = context.take_key(disclosure, raw_key(disclosure, message))
            except CryptoError as error:
                raise BadEnvelope("The offered public key is not usable.") from error
            self._engine.record("key", {"event": "received", "key": key.key_id})
        self._answering.stands = beginning(incoming.envelope)
        return []

    def check_time(self, round: int) -> None:
        """Raise Replay for keys of an epoch that is over.

        Within their epoch keys may stall until after Asks that rest on none, and are taken then.
        """
        policy = self._context.policy
        if epoch_of(round, policy) < epoch_of(self._progress.round, policy):
            raise Replay("Keys arrived for an epoch that is over.")

    def check(self, round: int) -> None:
        """Raise WrongStage for what is asked for under keys that are not, or no more, here."""
        if self.epoch != epoch_of(round, self._context.policy):
            raise WrongStage("A result is asked for under the key of another epoch (O9).")

    takes: ClassVar[Takes] = {(Service.KEYS, Step.OFFER): _take_key}


# --- The secret keys of an epoch, at the key authority: in memory, for one epoch (O9) ---


class SecretKeys(SessionPart):
    """Makes an epoch's keys and destroys those of the one before."""

    called: ClassVar[str] = "keys"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.held: dict[Disclosure, SecretKey] = {}
        self._epoch = -1

    def begin(self) -> None:
        """Be ready at once where no keys are called for: then other things are opened."""
        if not self._context.plans("", Service.KEYS, Step.CALL):
            self._engine.move(Event.BEGIN)

    def of(self, disclosure: Disclosure) -> SecretKey:
        """Return this epoch's secret key of a disclosure."""
        if disclosure not in self.held:
            raise LocalProtocolError("This key authority holds no key.")
        return self.held[disclosure]

    def _make_key(self, incoming: Incoming) -> list[Delivery]:
        """Make the key of an epoch; the one before it is destroyed first (O9)."""
        header, context = incoming.header, self._context
        epoch = epoch_of(header.round, context.policy)
        if epoch <= self._epoch:
            raise BadEnvelope("A second key is called for in one epoch (O9).")
        self._engine.move(Event.KEY)
        self._engine.forget(Scope.EPOCH)
        self._epoch = epoch
        messages = [self._new_key(d) for d in keyed(context.plan.items, context.policy)]
        where = Where(round=header.round, exchange=header.exchange)
        offer = context.find("", Service.KEYS, Step.OFFER)
        return [self._engine.send(offer, messages, EVERYONE, where)]

    def _new_key(self, disclosure: Disclosure) -> Message:
        """Make one key of an epoch; return its public half."""
        context = self._context
        scheme = context.scheme if disclosure is Disclosure.SUM else ring_of(disclosure)
        if scheme is None:
            raise LocalProtocolError("This key authority has no encryption scheme.")
        public, self.held[disclosure] = scheme.keygen()
        if disclosure is Disclosure.SUM:
            context.he_key = public
        else:
            context.keys = {**context.keys, disclosure: public}
        facts = {"event": "made", "key": public.key_id, "scheme": scheme.name}
        self._engine.record("key", facts)
        return key_message(disclosure, public.raw)

    def forget(self, scope: Scope) -> None:
        """Destroy the keys at the end of their epoch, and of the run."""
        if scope not in (Scope.EPOCH, Scope.RUN):
            return
        for disclosure, secret in list(self.held.items()):
            secret.destroy()
            del self.held[disclosure]
            with contextlib.suppress(LedgerError):  # it must go even if nothing can be written
                self._engine.record("key", {"event": "destroyed", "key": secret.key_id})

    takes: ClassVar[Takes] = {(Service.KEYS, Step.CALL): _make_key}
