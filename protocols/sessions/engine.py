"""What leaves a session in one exchange: deliveries, all at once or a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from typing import Any, ClassVar, Protocol, Self, cast, get_type_hints

from protocols.errors import BadEnvelope, LedgerError, LocalProtocolError, Replay
from protocols.evidence.ledger import Ledger
from protocols.keys.groups import epoch_of
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.steps import Part, Step
from protocols.sessions.asking import refusal
from protocols.sessions.part import (
    Captures,
    Delivery,
    Engine,
    Event,
    M,
    Scope,
    SessionPart,
    State,
    Table,
    Takes,
    advance,
    part_name,
)
from protocols.wire.envelope import Header, Where, beginning, is_again
from protocols.wire.gateway import Gateway
from protocols.wire.inbox import Inbox, Incoming
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext

__all__ = [
    "Answering",
    "Committing",
    "Delivery",
    "Keeper",
    "Outgoing",
    "Phase",
    "Progress",
    "Session",
    "Stream",
]


class Stream:
    """Deliveries that are made while they are carried, a batch at a time, and not held all at once.

    Each batch is recorded, and its record durable, before it is handed out.

    Args:
        session: makes them.
        deliveries: makes the next one when it is asked for.
        size: of a batch.
    """

    def __init__(self, session: Committing, deliveries: Iterable[Delivery], size: int) -> None:
        self._session, self._deliveries, self._size = session, iter(deliveries), size

    def batches(self) -> Iterator[list[Delivery]]:
        """Yield all deliveries, once; whatever fails ends the session."""
        try:
            while batch := list(islice(self._deliveries, self._size)):
                self._session.commit()
                yield batch
        except Exception as error:
            self._session.die(error)
            raise


Outgoing = Sequence[Delivery] | Stream
"""What leaves in one exchange."""


class Committing(Protocol):
    """What a stream needs of a session."""

    def commit(self) -> None:
        """Make state and ledger durable."""

    def die(self, error: BaseException) -> None:
        """End the session for good."""


# --- The order of what happens in one Ask, at the aggregator ---
#
# One phase at a time: a part begins its phase when the one before is over, is asked to go on when
# an exchange's answers are in, and says that it is done by returning None. Phases that an Ask does
# not want are left out; parts of one phase follow each other, by name.


class Phase(IntEnum):
    """Where an Ask stands; the order is the order of the numbers."""

    BEFORE_ASK = 1  # rows that it hands out are weighed, witnessed and opened
    ANSWERS = 2  # it goes out, and the cohort answers
    SETTLE = 3  # who did not answer has vanished; those who did are its survivors
    UNLINK = 4  # a relay takes the senders off mixtures
    MATCH = 5  # tags are made and compared, and cells add up
    COMPARE = 6  # cosines are computed, witnessed and opened
    SUM = 7  # the survivor list is agreed on, and the total opened
    DONE = 8  # the reply is complete, or the round is lost


# --- How far a party that is asked has come: exchanges and rounds only go forward ---


class Progress(SessionPart):
    """Remembers the latest exchange and round, so that nothing older is taken."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.exchange = self.round = 0  # of the last Ask accepted

    def reached(self, exchange: int, round: int) -> None:
        """Note an exchange, and its round, as accepted; raises Replay if one of them goes back."""
        if exchange < self.exchange or round < self.round:
            raise Replay("An envelope is of an exchange or a round that is over.")
        self.exchange, self.round = exchange, round

    def new_epoch(self, incoming: Incoming, before: int) -> int:
        """Return the epoch that keys are for; they only ever come for a later one.

        Raises:
            BadEnvelope: for this epoch, or an earlier one, or a round that is over.
        """
        epoch = epoch_of(incoming.header.round, self._context.policy)
        if epoch <= before or incoming.header.round < self.round:
            raise BadEnvelope("Keys arrived for an epoch that has its keys already (O9).")
        return epoch


# --- What all roles that are asked share: one envelope, one answer, and no more after an error ---


class Answering(SessionPart):
    """Answers envelopes one by one.

    The very same bytes again get the very same answer, a refusal included, whoever lost it.

    Attributes:
        repeats: whether the last answer is kept, for who asks again. Without, the same bytes are a
            replay.
        again: these very bytes were recorded by `before_opening`, and killed before they were
            answered.
        stands: how the envelope began that is answered with nothing for as long as it stands,
            whatever came in between: that of the epoch's public keys. Whoever hands them out does
            not know who has them.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.repeats, self.again, self.stands = True, False, b""
        # How the last envelope began, and its answer: None while what it asks for is being opened.
        self.repeat: tuple[bytes, list[Delivery] | None] = (b"", [])

    def receive(self, data: bytes) -> list[Delivery]:
        """Take one envelope, return what leaves in answer; the ledger is durable by then.

        Bytes that are not authentic raise and change nothing, and so do those of an exchange that
        is over, or that come before what they rest on: who carries envelopes could bring them at
        any time. Any other authentic envelope that cannot be answered gets one refusal and ends
        the session.

        Raises:
            RemoteProtocolError: not authentic, a replay, out of its time, or for another run or
                party.
            LedgerError: the record could not be written; nothing is opened, nothing leaves.
        """
        engine = self._engine
        self.again = is_again(data, self.repeat[0])
        if self.again and self.repeat[1] is not None:  # None: killed between record and answer
            return self.repeat[1]
        engine.alive()
        if is_again(data, self.stands):
            return []
        incoming = engine.open(data, again=self.again)
        try:
            replies: list[Delivery] = engine.handler(incoming)(incoming)
        except LedgerError as error:
            engine.die(error)
            raise
        except Exception as error:
            engine.die(error)
            aggregator = self._context.roster.one(Role.AGGREGATOR).name
            replies = [refusal(engine, error, aggregator, self._place(incoming))]
        if self.repeats:
            self.repeat = (beginning(incoming.envelope), replies)
        try:
            engine.commit()
        except BaseException as error:  # whatever failed: this answer never leaves
            engine.die(error)
            raise
        return replies

    def _place(self, incoming: Incoming) -> Where:
        """Return where a refusal belongs; a client also repeats what it was given."""
        header = incoming.header
        if self._context.me.party.role is not Role.CLIENT:
            return Where(header.round, header.exchange)
        return Where(header.round, header.exchange, (), header.given, header.attempt)

    def before_opening(self, incoming: Incoming) -> None:
        """Make durable what is about to be opened: a restart must open these bytes, or none."""
        self.repeat = (beginning(incoming.envelope), None)
        self._engine.commit()

    def forget(self, scope: Scope) -> None:
        """Say nothing again once the session is over."""
        if scope is Scope.RUN:
            self.repeat, self.stands = (b"", []), b""


# --- The engine under every role: state by table, gateway, inbox, ledger, and who takes what ---
#
# A role's session inherits from `Session` alone and is made of parts (`protocols.sessions.part`).


class Keeper(Protocol):
    """Keeps a session's state where it survives its process."""

    def save(self, session: Session) -> None:
        """Keep the state as it is now; raises LedgerError if that is not possible."""

    def renew(self) -> None:
        """Let the next state stand alone, under a new key: an epoch is over."""


class Session:
    """One role in one run.

    Args:
        context: identity, roster, plan, policy, run.
        ledger: this party's record.
        rounding: key of the stochastic rounding stream (see `protocols.wire.gateway`).
    """

    made_of: ClassVar[tuple[type[SessionPart], ...]] = ()
    """The parts of this role, each there once; those that they are made with are added."""

    table: ClassVar[Table] = {}
    """This role's states and what moves it from one to another."""

    takes: ClassVar[Takes] = {}
    """What this role is sent, and the method that takes it: its own, and those of its parts."""

    apart: ClassVar[frozenset[str]] = frozenset(
        {"keeper", "last_error", "planted", "recorder", "_parts", "_by_kind", "_noting"}
    )
    """Attributes that are no state, or are kept as pieces of their own."""

    _wiring: ClassVar[Mapping[type[SessionPart], Sequence[type[SessionPart]]]] = {}
    _takers: ClassVar[Mapping[tuple[Part, Step], type[Any]]] = {}

    def __init_subclass__(cls, **facts: Any) -> None:
        """Join the tables of a role's parts; raises TypeError if two take the same, or a name."""
        super().__init_subclass__(**facts)
        cls.made_of = tuple(dict.fromkeys(one for kind in cls.made_of for one in _with(kind)))
        cls._wiring = {kind: _needed(kind) for kind in cls.made_of}
        if len(set(map(part_name, cls.made_of))) < len(cls.made_of):
            raise TypeError(f"Two parts of {cls.__name__} have one name.")
        takes: dict[tuple[Part, Step], Callable[..., Any]] = {}
        takers: dict[tuple[Part, Step], type[Any]] = {}
        own: tuple[type[Any], Takes] = cls, vars(cls).get("takes", {})
        for kind, steps in (own, *((part, part.takes) for part in cls.made_of)):
            if twice := takes.keys() & steps.keys():
                raise TypeError(f"Two parts of {cls.__name__} take {sorted(map(str, twice))}.")
            takes.update(steps)
            takers.update(dict.fromkeys(steps, kind))
        cls.takes, cls._takers = takes, takers

    def __init__(self, context: RunContext, ledger: Ledger, rounding: bytes) -> None:
        self.context, self.ledger = context, ledger
        self.name, self.role = context.me.party.name, context.me.party.role
        self._gateway, self._inbox = Gateway(context, ledger, rounding), Inbox(context, ledger)
        self.state, self.ended = State.NEW, False  # ended: the last entry was recorded
        self.keeper: Keeper | None = None  # keeps this session's state for after a kill
        self.recorder: Captures | None = None  # keeps captured rounds for audits
        self.last_error: BaseException | None = None  # for the local operator only; never sent
        ledger.record(
            "plan",
            {
                "config": context.config,
                "plan": context.plan_digest,
                "policy": context.policy_digest,
                "role": str(self.role),
                "roster": context.roster.digest,
                "transport": context.transport,
                **self.committed(),
            },
        )
        self._make()
        for part in self.parts.values():
            part.begin()

    def _make(self) -> None:
        """Make this role's parts, each an attribute and each after those that it is made with."""
        made: dict[type[SessionPart], SessionPart] = {}
        for kind, needed in self._wiring.items():
            made[kind] = kind(self, *(made[other] for other in needed))
            setattr(self, part_name(kind), made[kind])
        self._parts = {part_name(kind): part for kind, part in made.items()}
        self._by_kind: dict[type[Any], Any] = {type(self): self, **made}
        self._noting = [part for part in made.values() if type(part).sent is not SessionPart.sent]

    @property
    def parts(self) -> Mapping[str, SessionPart]:
        """All parts, by name, in the order in which they were made."""
        return self._parts

    def committed(self) -> Mapping[str, str]:
        """Return what the ledger's first entry states besides; a role may commit to something."""
        return {}

    def opened(self) -> Mapping[str, str]:
        """Return what the ledger's last entry states besides: what was committed to."""
        return {}

    def kept(self) -> dict[str, Any]:
        """Return everything that must survive this process, of the session and of each part."""
        parts = self.parts
        own = {k: v for k, v in vars(self).items() if k not in parts and k not in self.apart}
        return {"parts": {name: _kept(part) for name, part in parts.items()}, "session": own}

    def lasting(self) -> frozenset[str]:
        """Return the paths of what says that something was opened or used up; see `kept`."""
        return frozenset(f"parts/{n}/{f}" for n, part in self.parts.items() for f in part.lasting)

    @classmethod
    def taken_up(cls, kept: Mapping[str, Any], keeper: Keeper) -> Self:
        """Return a session as it was kept.

        Raises:
            LocalProtocolError: what was kept is not of just its parts, or of other fields.
        """
        session = cls.__new__(cls)
        vars(session).update({**dict.fromkeys(cls.apart), **kept["session"], "keeper": keeper})
        session._make()
        parts, states = session.parts, kept["parts"]
        fields = {name: _kept(part).keys() for name, part in parts.items()}
        if fields != {name: state.keys() for name, state in states.items()}:
            raise LocalProtocolError("A kept state holds other fields than a session has.")
        for name, part in parts.items():
            vars(part).update(states[name])
        return session

    def receive(self, data: bytes) -> list[Delivery]:
        """Take one envelope, return what leaves in answer; see `Answering.receive`."""
        (answering,) = (part for part in self.parts.values() if isinstance(part, Answering))
        return answering.receive(data)

    def move(self, event: Event) -> None:
        """Take one transition; raises WrongStage if the table holds none."""
        self.state = advance(self.role, self.table, self.state, event)

    def handler(self, incoming: Incoming) -> Callable[..., Any]:
        """Return what takes an envelope of this part and step; raises BadEnvelope if nothing."""
        step = incoming.item.part, incoming.item.step
        found, kind = self.takes.get(step), self._takers.get(step)
        if found is None or kind is None:
            raise BadEnvelope(f"An envelope of this kind is not for a {self.role}.")
        return cast(Callable[..., Any], getattr(self._by_kind[kind], found.__name__))

    def open(self, data: bytes, *, again: bool = False, exchange: int | None = None) -> Incoming:
        """Check and open an envelope, and record its receipt; see `Inbox.open`."""
        return self._inbox.open(data, again=again, exchange=exchange, due=self.due)

    def due(self, header: Header, item: Item) -> None:
        """Raise WrongStage for what comes before what it rests on; nothing of it is remembered."""

    def read(self, incoming: Incoming, kinds: tuple[type[Message], ...]) -> tuple[Message, ...]:
        """Decode an envelope's fields; raises BadEnvelope if they are not exactly as planned."""
        return self._inbox.read(incoming, kinds)

    def read_one(self, incoming: Incoming, kind: type[M]) -> M:
        """Decode an envelope of one message; raises BadEnvelope if it is not as planned."""
        (message,) = self.read(incoming, (kind,))
        if not isinstance(message, kind):
            raise BadEnvelope(f"An envelope holds another message than a {kind.__name__}.")
        return message

    def record(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Add an entry to the ledger."""
        self.ledger.record(kind, facts)

    def alive(self) -> None:
        """Raise LocalProtocolError if an earlier error ended this session."""
        if self.state in (State.DEAD, State.CLOSED):
            raise LocalProtocolError(f"This session of {self.name} is over ({self.state}).")

    def die(self, error: BaseException) -> None:
        """End the session for good and remember why, locally."""
        self.state, self.last_error = State.DEAD, error
        self.forget(Scope.RUN)

    def forget(self, scope: Scope) -> None:
        """Let every part drop what belongs to a scope that ends, and to those within it (O9)."""
        scopes = list(Scope)
        for ended in scopes[: scopes.index(scope) + 1]:
            for part in self.parts.values():
                part.forget(ended)
                if ended is Scope.ASK:
                    part.rest()
            if ended is Scope.EPOCH and self.keeper is not None:
                self.keeper.renew()

    def send(
        self,
        item: Item,
        messages: Sequence[Message],
        recipient: str,
        where: Where,
        known: Mapping[Message, bytes] | None = None,
    ) -> Delivery:
        """Release through the gateway; the delivery may leave only after `commit`."""
        envelope = self._gateway.release(item.id, messages, recipient, where, known)
        for part in self._noting:
            part.sent(envelope)
        return Delivery(recipient, envelope.encode())

    def commit(self) -> None:
        """Keep the state, then make the ledger durable; only after both may anything leave.

        In this order, so that whatever a ledger says, the state kept beside it knows of.

        Raises:
            LedgerError: one of them could not be written; nothing may be sent.
        """
        if self.keeper is not None:
            self.keeper.save(self)
        self.ledger.commit()

    def close(self, result: Mapping[str, str] | None = None) -> None:
        """End the run: record the last entry and write it. Harmless when repeated.

        Args:
            result: digests of what a finished run leaves (model, metrics), at the aggregator.
        """
        self.forget(Scope.RUN)
        if self.ended:
            self.ledger.commit()
            return
        if self.state is not State.DEAD:
            self.move(Event.CLOSE)
        facts: dict[str, Any] = {"state": str(self.state), **self.opened()}
        if result is not None:
            facts["result"] = dict(result)
        self.ended = True
        self.ledger.record("close", facts)
        self.commit()


def _kept(part: SessionPart) -> dict[str, Any]:
    """Return what a part holds itself: neither the engine nor other parts."""
    return {
        name: value
        for name, value in vars(part).items()
        if name not in part.apart and not isinstance(value, SessionPart | Session)
    }


def _needed(kind: type[SessionPart]) -> tuple[type[SessionPart], ...]:
    """Return the parts that a part is made with, as its constructor's annotations say."""
    hints = get_type_hints(kind.__init__)
    return tuple(h for h in hints.values() if isinstance(h, type) and issubclass(h, SessionPart))


def _with(kind: type[SessionPart]) -> Iterator[type[SessionPart]]:
    """Return a part after all that it is made with."""
    for other in _needed(kind):
        yield from _with(other)
    yield kind
