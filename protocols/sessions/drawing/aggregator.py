"""The aggregator's part in the draw: it is bound first, hands everybody's word on, opens last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from crypto.samplers import entropy
from crypto.signing.signatures import SIGNATURE_BYTES
from protocols.errors import RemoteProtocolError, Replay, WrongStage
from protocols.keys.lots import SECRET_BYTES, Table, bound_to, check_commit, column
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.sessions.drawing.drawn import Drawn
from protocols.sessions.part import Delivery, Engine, SessionPart, Takes
from protocols.sessions.table import Event
from protocols.wire.control import DrawCall, DrawCommit, DrawCommits, DrawLot, DrawLots
from protocols.wire.inbox import Incoming
from protocols.wire.where import Where

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
