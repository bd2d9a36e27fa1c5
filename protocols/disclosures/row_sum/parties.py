"""What client, matcher and tag server do to add up rows."""

from __future__ import annotations

from typing import ClassVar

from crypto.samplers import entropy
from protocols.disclosures.match.messages import Box, Canary
from protocols.disclosures.match.parties import TagService, bundled, read_bundle
from protocols.disclosures.match.protocol.cells import same_canary
from protocols.disclosures.match.protocol.wire import Kind, MatchRun
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.disclosure import HandedRows, RowAnswers, RowsView
from protocols.disclosures.row_sum.messages import RowParts, RowTotals
from protocols.disclosures.row_sum.protocol.assignment import (
    Adding,
    Getting,
    Orders,
    assigned,
    confirmed,
    orders,
)
from protocols.disclosures.row_sum.protocol.client import ClientRows
from protocols.disclosures.row_sum.protocol.wire import RowRun, orders_bytes, read_offer
from protocols.disclosures.row_sum.run import RowSide, grid_of, held, needed_run, row_run_of
from protocols.errors import BadEnvelope, LocalProtocolError, Replay
from protocols.messages import Message
from protocols.plan.steps import Step
from protocols.privacy.record_noise import counted_in
from protocols.sessions.part import Delivery, Engine, Event, Scope, SessionPart, Takes
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming

# The client's part while rows are found and added up (docs/adr/0051).

_ROWS = Disclosure.ROW_SUM
_STEPS = tuple((_ROWS, step) for step in (Step.HALFWAY, Step.TAGGED, Step.TOLD, Step.MATES))


class RowAdding(SessionPart):
    """Answers the steps between this client's terms and the sums that receivers open."""

    opens: ClassVar[tuple[type[Message], ...]] = (RowTotals,)

    def begin(self) -> None:
        """Take part in the run's rows, if there are any."""
        context = self._context
        if row_run_of(context) is not None:
            context.held = {**context.held, _ROWS: RowSide(context)}  # contexts are copied

    def forget(self, scope: Scope) -> None:
        """Drop terms, tags and secrets once the session is over (O9)."""
        if scope is Scope.RUN:
            held = self._context.held
            self._context.held = {n: one for n, one in held.items() if n != _ROWS}

    def _take(self, incoming: Incoming) -> list[Delivery]:
        """Answer one step."""
        self._engine.move(Event.STEP)
        side, header, context = held(self._context), incoming.header, self._context
        where = side.where
        place = (header.round, header.exchange, where.members, header.given, header.attempt)
        side.check(Where(*place))
        if header.cohort != context.cohort(where):
            raise BadEnvelope("What is added up belongs to another cohort.")
        boxes = self._engine.read_one(incoming, Box).boxes
        steps = {
            Step.HALFWAY: self._halfway,
            Step.TAGGED: self._tagged,
            Step.TOLD: self._told,
            Step.MATES: self._mates,
        }
        step, said = steps[incoming.item.step](side, boxes)
        if step is Step.TAGS and self._engine.recorder is not None:
            self._engine.recorder.tagged(incoming.item.exchange, where, side.tagged)
        item = context.find(incoming.item.exchange, _ROWS, step)
        return [self._engine.send(item, [said], header.sender, where)]

    def _halfway(self, side: RowSide, boxes: bytes) -> tuple[Step, Message]:
        return Step.ONWARD, Box(boxes=side.rows.forward(boxes))

    def _tagged(self, side: RowSide, boxes: bytes) -> tuple[Step, Message]:
        found = side.rows.hand_over(boxes)
        # Before the tags leave: whoever gets another key may never be told of a row (O24).
        self._note(side, {"canary": side.rows.digest.hex()})
        return Step.TAGS, Box(boxes=found)

    def _told(self, side: RowSide, boxes: bytes) -> tuple[Step, Message]:
        sealed, run = side.halves(boxes), side.rows.row_run
        told = side.rows.orders
        self._note(side, {"adding": len(told.adding), "getting": len(told.getting)})
        empty = bytes(run.length(Kind.SHARE))
        return Step.SPLIT, Box(boxes=b"".join(sealed.get(n, empty) for n in run.roster.clients))

    def _mates(self, side: RowSide, boxes: bytes) -> tuple[Step, Message]:
        run = side.rows.row_run
        size = run.length(Kind.SHARE)
        cut = {n: boxes[i * size : (i + 1) * size] for i, n in enumerate(run.roster.clients)}
        there = {name: box for name, box in cut.items() if any(box)}
        noise = counted_in(self._context.plan.items, "node")
        slots, clipped, sums = side.parts(there, *grid_of(self._context.policy), noise)
        facts: dict[str, object] = {"clipped": int(clipped), "sums": sums}
        if noise is not None:
            spent = {"delta": noise.delta, "epsilon": noise.epsilon, "scale": noise.scale}
            facts |= {**spent, "entered": side.entered()}
        self._note(side, facts)
        return Step.PART, RowParts(slots=slots)

    def _note(self, side: RowSide, facts: dict[str, object]) -> None:
        where = side.where
        place = {"exchange": where.exchange, "round": where.round}
        self._engine.record("rows", {**facts, **place})

    def unsealed(self, kind: type[Message], message: Message, name: str, where: Where) -> Message:
        """Return the rows that this client was told as the message that the algorithm reads."""
        if not isinstance(message, RowTotals):
            raise LocalProtocolError("These are no rows.")
        side = held(self._context)
        if side.where.round != where.round:
            raise BadEnvelope("Rows are given to who took part in them, in their round.")
        dims, grid = self._context.plan.dims, grid_of(self._context.policy)
        found, told, dropped = side.found(kind, message.slots, dims, *grid)
        self._note(side, {"dropped": dropped, "told": told})
        return found

    takes: ClassVar[Takes] = dict.fromkeys(_STEPS, _take)


CLIENT = RowAdding


# The matcher's part in rows: says who adds up which row for whom, by tags that it cannot make.


class RowMatcher(SessionPart):
    """Assigns rows, once in a run; it remembers that it did, and nothing of them.

    In captured rounds it keeps the tags that it compared, locked, for audits (A02, A03).
    """

    called: ClassVar[str] = "rows"
    lasting: ClassVar[frozenset[str]] = frozenset({"_done"})

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._done = False

    def _answer(self, incoming: Incoming) -> list[Delivery]:
        """Return a box for every client whose offer is here."""
        self._engine.move(Event.STEP)
        run, me = needed_run(self._context), self._context.me
        where, boxes = read_bundle(self._engine, incoming, Kind.TAGS, run)
        if self._done:
            raise Replay("Rows of a run are assigned once: a node enters one of them (O25).")
        self._done = True
        said = {
            name: read_offer(run.open(box, Kind.TAGS, where.round, me, name), run)
            for name, box in boxes.items()
        }
        digest = same_canary({name: one[0] for name, one in said.items()})
        named = {name: offer for name, (_, _, offer) in said.items()}
        served = assigned(confirmed(named), run.floor, run.guard.rows, each=run.each, said=named)
        key = entropy(32)
        found = {
            name: run.close(
                orders_bytes(orders(served, name, digest), sent, run, key),
                Kind.TOLD, where.round, me, name,
            )
            for name, (_, sent, _) in said.items()
        }  # fmt: skip
        facts = {"canary": digest.hex(), "clients": len(boxes), "sums": len(served)}
        place = {"exchange": where.exchange, "round": where.round}
        self._engine.record("rows", {**facts, **place})
        if self._engine.recorder is not None:
            view = {name: sent.tobytes() for name, (_, sent, _) in said.items()}
            self._engine.recorder.viewed(incoming.item.exchange, where, view)
        item = self._context.find(incoming.item.exchange, Disclosure.ROW_SUM, Step.COMPARED)
        answer = [bundled(run, where, Kind.TOLD, found), Canary(canary=digest)]
        return [self._engine.send(item, answer, incoming.header.sender, where)]

    takes: ClassVar[Takes] = {(Disclosure.ROW_SUM, Step.COMPARE): _answer}


MATCHER = RowMatcher


# The tag server's part in rows: as for `match`, once in a run.


class RowTagService(TagService):
    """Holds one share of the key of rows' tags."""

    called: ClassVar[str] = "row_tags"
    part: ClassVar[Disclosure] = Disclosure.ROW_SUM
    entry: ClassVar[str] = "row_tags"

    def _run(self) -> MatchRun:
        return needed_run(self._context)

    def _catalogue(self, name: str) -> int:
        """Return how many public numbers of nodes there are, as the plan says."""
        return self._context.plan.dims["nodes"]

    takes: ClassVar[Takes] = {
        (Disclosure.ROW_SUM, Step.POINTS): TagService._answer,
        (Disclosure.ROW_SUM, Step.SECOND_POINTS): TagService._answer,
    }


TAG_SERVER = RowTagService


KEPT = (
    *(Adding, ClientRows, Getting, HandedRows, Orders),
    *(RowAnswers, RowRun, RowSide, RowsView),
)
