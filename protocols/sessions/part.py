"""What moves a session of any role; the tables themselves stand in the roles' files, as data.

An illegal move is a missing key. Two rules: everything that decides a transition of a session
stands in its role's table, and any exception moves a session to ``DEAD`` for good, unless the
bytes at fault were never authenticated, came before or after their time in the run, by what their
sender signed, or a round was lost because too many clients vanished.

What happens within an Ask is no state of the session: each part has stages of its own, see
`protocols.sessions.part.SessionPart.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar

from protocols.disclosures._base.view import Answers, answers_of
from protocols.disclosures.mixed.layout import Numbers
from protocols.disclosures.sum.layout import Words
from protocols.errors import BadEnvelope, LocalProtocolError, WrongStage
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan import steps
from protocols.plan.plan import Item
from protocols.plan.steps import Part, Service, Step
from protocols.rounds import Given, Reply, View
from protocols.wire.envelope import Envelope, Where
from protocols.wire.inbox import Incoming
from protocols.wire.roster import as_set
from protocols.wire.run_context import RunContext


class State(StrEnum):
    """Where a session stands."""

    NEW = "NEW"
    KEYING = "KEYING"  # aggregator: an epoch's keys are being agreed on
    READY = "READY"  # keys are here, nothing is going on
    ASKED = "ASKED"  # aggregator: an Ask is under way
    PARTING = "PARTING"  # aggregator: all clients were given the last heads
    PARTED = "PARTED"  # aggregator and clients: the run is over, and nothing is asked or answered
    CLOSED = "CLOSED"
    DEAD = "DEAD"


class Event(StrEnum):
    """What can happen to a session."""

    SETUP = "SETUP"  # aggregator: a new epoch begins
    DRAW = "DRAW"  # lots are drawn for the run's cohorts
    KEY = "KEY"  # the epoch's public key was made or received
    PAIR = "PAIR"  # secrets of pairs were called for, handed on, or received
    BEGIN = "BEGIN"  # nothing is left to agree on before the next Ask
    ASK = "ASK"  # aggregator: an Ask begins; client: an Ask arrived
    STEP = "STEP"  # everybody else, and clients: what an Ask needs of them later arrived
    ANSWERED = "ANSWERED"  # aggregator: the reply is complete
    LOST = "LOST"  # aggregator: too few clients are left; the round is skipped
    PART = "PART"  # aggregator: the last heads go out; client: they arrived
    CLOSE = "CLOSE"


Table = Mapping[State, Mapping[Event, State]]
"""By state and event the next state; every state that stands in it can be closed."""


def table(moves: Table) -> Table:
    """Return a role's table, in which every state can also be closed."""
    closes = {Event.CLOSE: State.CLOSED}
    return MappingProxyType({s: MappingProxyType({**moves[s], **closes}) for s in moves})


STEPS = table({State.NEW: {Event.STEP: State.READY}, State.READY: {Event.STEP: State.READY}})
"""Of a role that takes part in Asks and in nothing else."""


def advance(role: str, moves: Table, state: State, event: Event) -> State:
    """Return the next state; raises WrongStage if the table holds none."""
    try:
        return moves[state][event]
    except KeyError as error:
        raise WrongStage(f"A {role} in state {state} does not expect {event}.") from error


# --- The answers to one Ask: which are here, whose count, and the reply that they amount to ---

A = TypeVar("A", bound=Answers)


class Collection:
    """Collects the cohort's envelopes for one Ask, disclosure by disclosure.

    Args:
        context: of the aggregator.
        exchange: what was asked.
        where: round, exchange number, cohort, slot and digest of what was given.
    """

    def __init__(self, context: RunContext, exchange: Exchange, where: Where) -> None:
        self.exchange, self.where, self._context = exchange, where, context
        self.survivors: tuple[str, ...] = ()
        parts: list[Part] = list(dict.fromkeys(kind.disclosure for kind in exchange.back))
        self._answers: dict[Part, Answers] = {
            part: answers_of(part)(context, exchange, where, part)
            for part in parts or [Service.ASK]
        }

    def add(self, incoming: Incoming) -> None:
        """Take one answer.

        Raises:
            WrongStage: it belongs to another exchange or round.
            BadEnvelope: not from this cohort, made from another Start (O8) or key, or not masked.
        """
        header, where, part = incoming.header, self.where, incoming.item.part
        if incoming.item.exchange != self.exchange.name or part not in self._answers:
            raise WrongStage("An answer belongs to another exchange than the one asked.")
        self.check_place(incoming)
        if header.sender not in as_set(where.members):
            raise BadEnvelope("An answer is not from this cohort.")
        if header.given != where.given:
            raise BadEnvelope("A client was given something else than the others (O8).")
        self._answers[part].take(incoming)

    def check_place(self, incoming: Incoming) -> None:
        """Raise unless an envelope belongs to this round, exchange, attempt and cohort."""
        header, where = incoming.header, self.where
        places = (header.round, header.exchange, header.attempt)
        if places != (where.round, where.exchange, where.attempt):
            raise WrongStage("An answer belongs to another round than the one asked.")
        if header.cohort != self._context.cohort(where):
            raise BadEnvelope("An answer belongs to another cohort.")

    def missing(self) -> tuple[str, ...]:
        """Return the members of whom something is missing."""
        answers = self._answers.values()
        return tuple(
            member for member in self.where.members if not all(one.here(member) for one in answers)
        )

    def fix_survivors(self) -> tuple[str, ...]:
        """Settle whose answers count: those of which everything is here. Return who vanished."""
        gone = self.missing()
        there = as_set(self.where.members).difference(gone)
        self.survivors = tuple(m for m in self.where.members if m in there)
        for one in self._answers.values():
            one.settle(self.survivors)
        return gone

    @property
    def fixed(self) -> bool:
        """Whether an opening of these answers fixes who counts in their round (O5)."""
        return any(one.fixed for one in self._answers.values())

    def get(self, part: Part, kind: type[A]) -> A | None:
        """Return the answers of one disclosure; None if none were asked back."""
        found = self._answers.get(part)
        return found if isinstance(found, kind) else None

    def of(self, part: Part, kind: type[A]) -> A:
        """Return the answers of one disclosure; raises LocalProtocolError if none were asked."""
        found = self.get(part, kind)
        if found is None:
            raise LocalProtocolError(f"No {part} message was asked back.")
        return found

    def reply(self) -> Reply:
        """Build the Reply, one view per message type that came back, and forget the envelopes."""
        found: dict[type[Message], View] = {}
        for one in self._answers.values():
            found.update(one.views())
            one.forget()
        return Reply(found, len(self.survivors))


# --- What a part of a session is, and all that it sees of the engine ---
#
# A part does one disclosure's or one service's work in one role. It holds its own state, declares
# which envelopes it takes, and sees no other part's fields: what it needs of another it calls on
# the part that it was given when it was made.

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Delivery:
    """Bytes for one party; what a transport carries."""

    to: str
    data: bytes = field(repr=False)


class Scope(StrEnum):
    """What ends, each within the next; a part then drops what belongs to it (O9)."""

    ASK = "ASK"  # what was not used of an Ask, when the next one begins or its round is lost
    ROUND = "ROUND"
    EPOCH = "EPOCH"
    RUN = "RUN"  # the session died or was closed


IDLE = ""
"""A part has nothing to do in the Ask under way."""

Stages = Mapping[str, Set[str]]
"""By stage of a part's work in an Ask, those that may follow; it begins and ends idle."""

Takes = Mapping[tuple[steps.Part, Step], Callable[..., Any]]
"""By part of the plan and step, the method that takes an envelope."""


class Captures(Protocol):
    """Keeps what a session sends, or receives, in captured rounds; see `store.recording`."""

    def wants(self, exchange: Exchange, round: int) -> bool:
        """Tell whether this answer is captured."""

    def before(self, given: Sequence[Message]) -> bytes:
        """Return what an answer will rest on; to be called before the site changes."""

    def sent(
        self,
        name: str,
        where: Where,
        before: bytes,
        envelopes: Sequence[bytes],
        groups: Numbers | None,
        inside: Mapping[str, Words],
    ) -> None:
        """Keep an answer, who was mixed with whom, and masked vectors by item."""

    def tagged(self, name: str, where: Where, tags: Mapping[str, Any]) -> None:
        """Keep a client's tags beside its answer, if that was kept."""

    def viewed(self, name: str, where: Where, view: Mapping[str, bytes]) -> None:
        """Keep what a tag server or the matcher saw, or could make of it."""

    def came(self, name: str, where: Where, reply: Reply) -> None:
        """Keep what an Ask brought back."""


class Engine(Protocol):
    """What a part may do: all of it is checked, recorded and kept by `engine.Session`."""

    recorder: Captures | None

    @property
    def context(self) -> RunContext:
        """Identity, roster, plan, policy, run."""

    @property
    def name(self) -> str:
        """The party's name."""

    @property
    def state(self) -> State:
        """Where the session stands."""

    @property
    def parts(self) -> Mapping[str, SessionPart]:
        """All parts, to be told what happens; see the methods of `SessionPart`."""

    def move(self, event: Event) -> None:
        """Take one transition; raises WrongStage if the table holds none."""

    def open(self, data: bytes, *, again: bool = False, exchange: int | None = None) -> Incoming:
        """Check and open an envelope, and record its receipt; see `Inbox.open`."""

    def read(self, incoming: Incoming, kinds: tuple[type[Message], ...]) -> tuple[Message, ...]:
        """Decode an envelope's fields; raises BadEnvelope if they are not exactly as planned."""

    def read_one(self, incoming: Incoming, kind: type[M]) -> M:
        """Decode an envelope of one message; raises BadEnvelope if it is not as planned."""

    def handler(self, incoming: Incoming) -> Callable[..., Any]:
        """Return what takes an envelope of this part and step; raises BadEnvelope if nothing."""

    def record(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Add an entry to the ledger."""

    def send(
        self,
        item: Item,
        messages: Sequence[Message],
        recipient: str,
        where: Where,
        known: Mapping[Message, bytes] | None = None,
    ) -> Delivery:
        """Release through the gateway; the delivery may leave only after `commit`."""

    def commit(self) -> None:
        """Make state and ledger durable; only after both may anything leave."""

    def alive(self) -> None:
        """Raise LocalProtocolError if an earlier error ended this session."""

    def die(self, error: BaseException) -> None:
        """End the session for good and remember why, locally."""

    def forget(self, scope: Scope) -> None:
        """Let every part drop what belongs to a scope that ends, and to those within it."""


class SessionPart:
    """One service or one disclosure's work, in one role.

    Everything that a part holds is kept with the session, but for the engine and other parts, and
    for what `apart` names. A part whose constructor takes other parts, each by its class, is made
    after them.

    Args:
        engine: the session.
    """

    called: ClassVar[str] = ""
    """The session's attribute that holds this part; empty: its class's name in small letters."""

    takes: ClassVar[Takes] = {}
    """What this part is sent, and the method that takes it."""

    phase: ClassVar[int | None] = None
    """At the aggregator, which phase of an Ask it works in; see `protocols.sessions.engine`."""

    stages: ClassVar[Stages] = {}
    """At the aggregator, the stages of this part's work in an Ask; see `go`."""

    opens: ClassVar[tuple[type[Message], ...]] = ()
    """At a client, what stands on the wire for messages that this part opens."""

    apart: ClassVar[frozenset[str]] = frozenset()
    """Fields that are kept in a place of their own, or not at all."""

    lasting: ClassVar[frozenset[str]] = frozenset()
    """Fields that say what was opened or used up: a change of them must outlive a loss of power."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.stage = IDLE

    def go(self, stage: str) -> None:
        """Go to another stage; raises WrongStage where `stages` holds no way there."""
        if stage not in self.stages.get(self.stage, ()):
            name, here = part_name(type(self)), self.stage or "idle"
            raise WrongStage(f"The part {name!r} is {here} and cannot begin {stage}.")
        self.stage = stage

    def rest(self) -> None:
        """Be idle again: this part's work in the Ask is over, or the Ask is."""
        self.stage = IDLE

    @property
    def _context(self) -> RunContext:
        return self._engine.context

    def begin(self) -> None:
        """Do what the beginning of a run asks for; not called when a session is taken up."""

    def sent(self, envelope: Envelope) -> None:
        """Note what is about to leave."""

    def forget(self, scope: Scope) -> None:
        """Drop what belongs to a scope that ends (O9)."""

    # --- at the aggregator, in an Ask -----------------------------------------------------------

    def wanted(self) -> bool:
        """Tell whether the Ask under way has this part's phase."""
        return False

    def enter(self) -> Iterable[Delivery] | None:
        """Begin the phase: return what is to be sent, None if it is over already."""
        return None

    def advance(self) -> Iterable[Delivery] | None:
        """Go on with what has arrived: return what is to be sent, None if the phase is over."""
        return None

    def slot(self, exchange: Exchange, round: int, members: Sequence[str]) -> int:
        """Return which slot of masks an Ask uses that is about to go out; 0 without masks (O6)."""
        return 0

    def going_out(self, answers: Collection) -> None:
        """Note where the answers of an Ask are collected that goes out now."""

    def alike(self, given: Given) -> Message | None:
        """Return what all members get alike for a token; None: not this part's, or not alike."""
        return None

    def handed(self, given: Given, member: str) -> Message | None:
        """Return what one member gets for a token that an Ask hands out; None: not this part's."""
        return None

    def settled(self, answers: Collection) -> None:
        """Take over what is needed of an Ask's answers, once it is settled whose count."""

    def answered(self, answers: Collection) -> None:
        """Take over what an Ask brought back, once its reply is complete."""

    # --- at a client, in an Ask -----------------------------------------------------------------

    def keys_here(self, exchange: Exchange, round: int) -> None:
        """Raise WrongStage where an Ask comes before the keys that it rests on."""

    def asked_back(self, exchange: Exchange, where: Where) -> None:
        """Refuse an Ask before anything is computed."""

    def gave(self, item: Item, messages: Sequence[Message], where: Where) -> None:
        """Note what this client is about to send."""

    def unsealed(self, kind: type[Message], message: Message, name: str, where: Where) -> Message:
        """Return the message that the algorithm reads of one that `opens` names."""
        raise LocalProtocolError("This part opens nothing.")


def part_name(kind: type[SessionPart]) -> str:
    """Return the name under which a session holds a part."""
    return kind.called or kind.__name__.lower()
