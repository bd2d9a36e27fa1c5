"""What a part of a session is, and all that it sees of the engine.

A part does one disclosure's or one service's work in one role. It holds its own state, declares
which envelopes it takes, and sees no other part's fields: what it needs of another it calls on the
part that it was given when it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeVar

from protocols.disclosures.mixed.layout import Numbers
from protocols.disclosures.sum.layout import Words
from protocols.errors import LocalProtocolError, WrongStage
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan import steps
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.rounds import Given, Reply
from protocols.sessions.collection import Collection
from protocols.sessions.table import Event, State
from protocols.wire.envelope import Envelope
from protocols.wire.inbox import Incoming
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where

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
    """At the aggregator, which phase of an Ask it works in; see `protocols.sessions.phases`."""

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
