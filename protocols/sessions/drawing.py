"""Cohorts drawn by lot: the draw at the aggregator and at clients, and the cohorts drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from crypto.samplers import entropy
from crypto.signing import SIGNATURE_BYTES
from protocols.errors import (
    BadEnvelope,
    CohortTooSmall,
    LocalProtocolError,
    RemoteProtocolError,
    Replay,
    WrongStage,
)
from protocols.forms import Exchange
from protocols.keys.lots import (
    SECRET_BYTES,
    Table,
    bound_to,
    check_commit,
    check_commits,
    column,
    rows_of,
    sign_commit,
)
from protocols.messages import Message
from protocols.plan.cohorts import DrawnPlan, clear_seed, drawn_cohorts, turn
from protocols.plan.steps import Service, Step
from protocols.sessions.part import Delivery, Engine, Event, SessionPart, Takes
from protocols.wire.control import DrawCall, DrawCommit, DrawCommits, DrawLot, DrawLots
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming
from protocols.wire.roster import as_set, within

# --- The cohorts that were drawn for this run, at the aggregator and at every client ---


class Drawn(SessionPart):
    """Holds what was drawn; it is of the run, and drawn once.

    Args:
        engine: the session.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._seed = b""
        self._clients: tuple[str, ...] = ()  # who drew lots, sorted
        self.within = self.least = 0  # of the cohorts as they are; see `DrawnPlan`

    def begin(self) -> None:
        """Draw at once where sums leave in clear, from the plan's public seed."""
        plan = self._context.plan
        if plan.drawn is not None and not plan.drawn.by_lot:
            clients = self._context.roster.clients
            self.settle(clear_seed(plan.seed, clients), clients)

    @property
    def planned(self) -> DrawnPlan | None:
        """What the plan says of it; None where a round asks all clients."""
        return self._context.plan.drawn

    def settle(self, seed: bytes, clients: Sequence[str]) -> None:
        """Take over a seed and who drew it.

        Raises:
            LocalProtocolError: cohorts were drawn before.
            PolicyError: too few clients are there for cohorts that are large enough.
        """
        left = self.check(clients)
        self.within, self.least = left.within, left.least
        self._seed, self._clients = seed, tuple(clients)
        facts = {
            "cohorts": left.cohorts,
            "members": self._context.roster.mask(self._clients).hex(),
            "seed": seed.hex(),
        }
        self._engine.record("drawn", facts)

    def check(self, clients: Sequence[str]) -> DrawnPlan:
        """Return what follows from the plan if these clients draw lots; see `settle`."""
        planned = self.planned
        if planned is None or self._seed:
            raise LocalProtocolError("The cohorts of a run are drawn once, where it has any.")
        return planned.left(len(clients), self._context.policy)

    @property
    def cohorts(self) -> tuple[tuple[str, ...], ...]:
        """The run's cohorts, in the order of their turns; empty before they are drawn."""
        planned = self.planned
        if planned is None or not self._seed:
            return ()
        return drawn_cohorts(self._seed, self._clients, planned.cohorts)

    def of(self, name: str) -> tuple[str, ...]:
        """Return the cohort of a client; empty if it drew no lot."""
        return next((cohort for cohort in self.cohorts if name in cohort), ())

    def asked_back(self, exchange: Exchange, where: Where) -> None:
        """At a client, refuse to answer with clients of another cohort, or out of turn.

        Members that are away may be missing; nobody else stands in for them.

        Raises:
            BadEnvelope: an Ask that brings something back is for others than lots drew, or a round
                is another cohort's.
            CohortTooSmall: for too few of them.
        """
        if self.planned is None or not exchange.back:
            return
        mine = self.of(self._engine.name)
        if not within(where.members, as_set(mine)):
            raise BadEnvelope(
                "An Ask's cohort is not the one that was drawn by lot for this client.",
                why="the aggregator chooses who is asked, or is out of step",
            )
        if not exchange.outside and turn(self.cohorts, where.round) != mine:
            raise BadEnvelope(
                "A round is asked of a cohort whose turn it is not.",
                why="the aggregator asks one cohort more often than the others, or is out of step",
            )
        if len(where.members) < self.least:
            raise CohortTooSmall(
                f"An Ask's cohort holds {len(where.members)} of the clients drawn for it; it needs "
                f"{self.least}.",
                why="the total of a small group tells its members about each other",
                fix="wait until more of them are there",
            )


# --- The aggregator's part in the draw: it is bound first, hands everybody's word on, opens last
# ---

_Said = dict[str, bytes]


class Drawing(SessionPart):
    """Draws lots with all clients; see `protocols.keys.lots`.

    Args:
        engine: the session.
        drawn: takes over what was drawn.
    """

    def __init__(self, engine: Engine, drawn: Drawn) -> None:
        super().__init__(engine)
        self._drawn = drawn
        self._secret = b""
        self._awaited: Step | None = None  # what clients answer next
        self.round = 0  # before which lots are drawn
        self._said: _Said = {}
        self._said_signed: _Said = {}
        self._opened: _Said = {}
        self._opened_signed: _Said = {}

    @property
    def wanted_first(self) -> bool:
        """Whether lots are to be drawn before anything else."""
        planned = self._drawn.planned
        return planned is not None and planned.by_lot and not self._secret

    @property
    def under_way(self) -> bool:
        """Whether clients are being asked."""
        return self._awaited is not None

    def call(self, round: int) -> Iterable[Delivery]:
        """Be bound, and ask all clients to be."""
        self._secret, self._awaited, self.round = entropy(SECRET_BYTES), Step.COMMIT, round
        said = DrawCall(commitment=self._own)
        return self._to(self._context.roster.clients, Step.CALL, said)

    def go_on(self) -> Iterable[Delivery]:
        """Hand on what was said, once everybody had its turn.

        Raises:
            PolicyError: too few clients are bound for cohorts that are large enough.
            RemoteProtocolError: a client that was bound did not open.
        """
        return self._hand_on_commits() if self._awaited is Step.COMMIT else self._hand_on_secrets()

    @property
    def _own(self) -> bytes:
        return bound_to(self._context, self._engine.name, self._secret)

    def _hand_on_commits(self) -> Iterable[Delivery]:
        roster, members = self._context.roster, sorted(self._said)
        self._drawn.check(members)
        self._awaited = Step.LOT
        message = DrawCommits(
            members=roster.mask(members),
            commitments=column(roster.clients, self._said, SECRET_BYTES),
            signatures=column(roster.clients, self._said_signed, SIGNATURE_BYTES),
        )
        return self._to(members, Step.COMMITS, message)

    def _hand_on_secrets(self) -> Iterable[Delivery]:
        roster, members = self._context.roster, sorted(self._said)
        if late := [name for name in members if name not in self._opened]:
            raise RemoteProtocolError(
                f"{len(late)} clients did not open what they were bound to when lots were drawn "
                f"({', '.join(late[:5])}). The run does not start.",
                why="a client is not reachable; drawing on without it would let the aggregator "
                "choose among seeds",
                fix="start the run again; if the same client fails again, leave it out",
            )
        self._awaited = None
        seed = self._table.seed(self._engine.name, self._secret, self._opened)
        self._drawn.settle(seed, members)
        message = DrawLots(
            own=self._secret,
            secrets=column(roster.clients, self._opened, SECRET_BYTES),
            signatures=column(roster.clients, self._opened_signed, SIGNATURE_BYTES),
        )
        return self._to(members, Step.LOTS, message)

    @property
    def _table(self) -> Table:
        return Table(self._context, self._own, self._said)

    def _to(self, names: Sequence[str], step: Step, message: Message) -> Iterable[Delivery]:
        item = self._context.find("", Service.DRAW, step)
        where = Where(round=self.round, exchange=0)
        return (self._engine.send(item, [message], name, where) for name in names)

    def _take_commit(self, incoming: Incoming) -> None:
        sender = self._sender(incoming, Step.COMMIT, self._said)
        found = self._engine.read_one(incoming, DrawCommit)
        check_commit(self._context, sender, found.commitment, found.signature)
        self._said[sender], self._said_signed[sender] = found.commitment, found.signature

    def _take_secret(self, incoming: Incoming) -> None:
        sender = self._sender(incoming, Step.LOT, self._opened)
        if sender not in self._said:
            raise WrongStage("Bytes were opened by a client that was not bound.")
        found = self._engine.read_one(incoming, DrawLot)
        self._table.check(sender, found.secret, found.signature)
        self._opened[sender], self._opened_signed[sender] = found.secret, found.signature

    def _sender(self, incoming: Incoming, step: Step, known: _Said) -> str:
        header = incoming.header
        if self._awaited is not step or (header.round, header.exchange) != (self.round, 0):
            raise WrongStage("A lot arrived while none was asked for.")
        if header.sender in known:
            raise Replay("This client's lot is here already.")
        self._engine.move(Event.DRAW)
        return header.sender

    takes: ClassVar[Takes] = {
        (Service.DRAW, Step.COMMIT): _take_commit,
        (Service.DRAW, Step.LOT): _take_secret,
    }


# --- A client's part in the draw: it is bound before it sees anything, and opens once in a run ---


class LotDrawing(SessionPart):
    """Draws lots with all others; see `protocols.keys.lots`.

    Args:
        engine: the session.
        drawn: takes over what was drawn.
    """

    called: ClassVar[str] = "lots"
    lasting: ClassVar[frozenset[str]] = frozenset({"_table"})

    def __init__(self, engine: Engine, drawn: Drawn) -> None:
        super().__init__(engine)
        self._drawn = drawn
        self._secret = self._aggregator = b""  # my bytes; what the aggregator is bound to
        self._table: dict[str, bytes] = {}  # what all clients are bound to; then mine are open

    def _take_call(self, incoming: Incoming) -> list[Delivery]:
        """Draw bytes of this client's own, and say what it is bound to."""
        self._engine.move(Event.DRAW)
        call = self._engine.read_one(incoming, DrawCall)
        if self._secret:
            raise BadEnvelope("Lots are drawn once in a run.")
        self._secret, self._aggregator = entropy(SECRET_BYTES), call.commitment
        said = bound_to(self._context, self._engine.name, self._secret)
        message = DrawCommit(commitment=said, signature=sign_commit(self._context, said))
        return [self._answer(Step.COMMIT, message, incoming)]

    def _take_commits(self, incoming: Incoming) -> list[Delivery]:
        """See that everybody is bound by its own signature; then open, for this table only."""
        self._engine.move(Event.DRAW)
        context, found = self._context, self._engine.read_one(incoming, DrawCommits)
        if not self._secret or self._table:
            raise BadEnvelope("A client opens its bytes once, after it was bound to them.")
        clients, members = context.roster.clients, context.roster.unmask(found.members)
        said = rows_of(clients, members, found.commitments)
        signed = rows_of(clients, members, found.signatures)
        mine = bound_to(context, self._engine.name, self._secret)
        if said.get(self._engine.name) != mine:
            raise BadEnvelope("The table of who is bound to what lacks this client, or lies of it.")
        self._drawn.check(members)
        check_commits(context, said, signed)
        self._table = said
        table = Table(context, self._aggregator, said)
        message = DrawLot(secret=self._secret, signature=table.sign())
        return [self._answer(Step.LOT, message, incoming)]

    def _take_secrets(self, incoming: Incoming) -> list[Delivery]:
        """See that everybody opened what it was bound to, for the table that this client saw."""
        self._engine.move(Event.DRAW)
        context, found = self._context, self._engine.read_one(incoming, DrawLots)
        if not self._table:
            raise BadEnvelope("Bytes were opened before this client knew who is bound to what.")
        clients, members = context.roster.clients, sorted(self._table)
        secrets = rows_of(clients, members, found.secrets)
        signed = rows_of(clients, members, found.signatures)
        table = Table(context, self._aggregator, self._table)
        table.check_all(secrets, signed)
        self._drawn.settle(table.seed(incoming.header.sender, found.own, secrets), members)
        self._secret = b""
        return []

    def _answer(self, step: Step, message: Message, incoming: Incoming) -> Delivery:
        item, header = self._context.find("", Service.DRAW, step), incoming.header
        where = Where(round=header.round, exchange=header.exchange)
        return self._engine.send(item, [message], header.sender, where)

    takes: ClassVar[Takes] = {
        (Service.DRAW, Step.CALL): _take_call,
        (Service.DRAW, Step.COMMITS): _take_commits,
        (Service.DRAW, Step.LOTS): _take_secrets,
    }
