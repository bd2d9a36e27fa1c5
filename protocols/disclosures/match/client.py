"""The client's part while items are matched: tags, then a cell and shares for it (O24, O25).

In the form `published` the matcher's lists take the place of the cell. What belongs to an Ask is
answered once, in order, and for that Ask only; `protocols.disclosures.match.run` holds the matcher
and the tag servers to what a client can see.
"""

from __future__ import annotations

from typing import ClassVar

from protocols.disclosures.match.messages import Box, CellBoxes, CellPart, CellTotals, Listed
from protocols.disclosures.match.run import MatchSide, held, match_run_of
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.sessions.part import Delivery, Scope, SessionPart, Takes
from protocols.sessions.table import Event
from protocols.wire.control import Acknowledgement
from protocols.wire.inbox import Incoming
from protocols.wire.where import Where

_STEPS = tuple(
    (Disclosure.MATCH, step) for step in (Step.HALFWAY, Step.TAGGED, Step.TOLD, Step.MATES)
)


class Matched(SessionPart):
    """Answers the steps of a matching between this client's answer and the totals of all cells."""

    opens: ClassVar[tuple[type[Message], ...]] = (CellTotals, Listed)

    def begin(self) -> None:
        """Take part in the run's matching, if there is one."""
        context, run = self._context, match_run_of(self._context)
        if run is not None:
            mine = MatchSide(run, context.me, context.tag_key, context.spread)
            context.held = {**context.held, Disclosure.MATCH: mine}  # contexts are copied

    def forget(self, scope: Scope) -> None:
        """Drop the tags and their key once the session is over (O9)."""
        if scope is Scope.RUN:
            self._context.held, self._context.tag_key = {}, None

    @property
    def _side(self) -> MatchSide:
        return held(self._context)

    def _take_match(self, incoming: Incoming) -> list[Delivery]:
        """Answer one step of matching."""
        self._engine.move(Event.STEP)
        side, header, context = self._side, incoming.header, self._context
        where = side.where
        place = (header.round, header.exchange, where.members, header.given, header.attempt)
        side.check(Where(*place))
        if header.cohort != context.cohort(where):
            raise BadEnvelope("What was matched belongs to another cohort.")
        name = incoming.item.exchange
        message = self._engine.read_one(incoming, Box)
        steps = {
            Step.HALFWAY: self._halfway,
            Step.TAGGED: self._tagged,
            Step.TOLD: self._told,
            Step.MATES: self._mates,
        }
        step, said = steps[incoming.item.step](name, message.boxes)
        return [self._engine.send(self._item(name, step), [said], header.sender, where)]

    def _item(self, name: str, step: Step) -> Item:
        return self._context.find(name, Disclosure.MATCH, step)

    def _halfway(self, name: str, boxes: bytes) -> tuple[Step, Message]:
        return Step.ONWARD, Box(boxes=self._side.forward(boxes))

    def _tagged(self, name: str, boxes: bytes) -> tuple[Step, Message]:
        side = self._side
        found = side.hand_over(boxes)
        # Before the tags leave: whoever gets another key may never be told of its cell (O24).
        facts = {"canary": side.digest, "exchange": side.where.exchange, "round": side.where.round}
        self._engine.record("canary", facts)
        return Step.TAGS, Box(boxes=found)

    def _told(self, name: str, boxes: bytes) -> tuple[Step, Message]:
        side, roster = self._side, self._context.roster
        if side.published:
            side.take(boxes)
            self._compared(name, side)
            return Step.TAKEN, Acknowledgement()
        cell, members, shares = side.share(boxes)
        self._compared(name, side)
        padded = shares.ljust(self._item(name, Step.SPLIT).dims["match_boxes"], b"\0")
        return Step.SPLIT, CellBoxes(cell=cell, members=roster.mask(members), boxes=padded)

    def _mates(self, name: str, boxes: bytes) -> tuple[Step, Message]:
        label, words = self._side.add(boxes)
        return Step.PART, CellPart(label=label, words=words)

    def unsealed(self, kind: type[Message], message: Message, name: str, where: Where) -> Message:
        """Return what was found as the message that the algorithm reads."""
        if not isinstance(message, CellTotals | Listed):
            raise LocalProtocolError("This says nothing of a matching.")
        return self._side.found(kind, message, self._context.plan.dims, where)

    def _compared(self, name: str, side: MatchSide) -> None:
        """Put the canary's digest into the ledger, for an audit to compare with all others'."""
        facts = {
            "canary": side.digest,
            "cells": side.cells,
            "exchange": side.where.exchange,
            "round": side.where.round,
        }
        self._engine.record("match", facts)
        if self._engine.recorder is not None:
            self._engine.recorder.tagged(name, side.where, side.tagged)

    takes: ClassVar[Takes] = dict.fromkeys(_STEPS, _take_match)


CLIENT = Matched
