"""The client's part while rows are found and added up (docs/adr/0051)."""

from __future__ import annotations

from typing import ClassVar

from protocols.disclosures.match.messages import Box
from protocols.disclosures.match.protocol.wire import Kind
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.messages import RowParts, RowTotals
from protocols.disclosures.row_sum.run import RowSide, grid_of, held, row_run_of
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.messages import Message
from protocols.plan.steps import Step
from protocols.privacy.record_noise import counted_in
from protocols.sessions.part import Delivery, Scope, SessionPart, Takes
from protocols.sessions.table import Event
from protocols.wire.inbox import Incoming
from protocols.wire.where import Where

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
