"""The client's session while items are matched: tags, then a cell and shares for it (O24, O25).

In the form `published` the matcher's lists take the place of the cell. What belongs to an Ask is
answered once, in order, and for that Ask only; `protocols.disclosures.match.run` holds the matcher
and the tag servers to what a client can see.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocols.disclosures.match.run import MatchSide
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.evidence.ledger import Ledger
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.sessions.base import Parcel
from protocols.sessions.holding import HoldingSession
from protocols.sessions.table import Event
from protocols.wire.control import Acknowledgement, Box, CellBoxes, CellPart, CellTotals, Listed
from protocols.wire.inbox import Letter
from protocols.wire.run_context import Papers
from protocols.wire.where import Where


class MatchingSession(HoldingSession):
    """What a client does between its answer and the totals of all cells."""

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        super().__init__(papers, ledger, rounding)
        run = papers.match_run()
        if run is not None:
            papers.matching = MatchSide(run, papers.me, papers.tag_key, papers.spread)

    def die(self, error: BaseException) -> None:
        """End the session for good and forget the tags."""
        super().die(error)
        self.papers.matching = None

    def close(self, result: Mapping[str, str] | None = None) -> None:
        """Forget the tags, record the last entry and end."""
        self.papers.matching = None
        super().close(result)

    @property
    def _side(self) -> MatchSide:
        if self.papers.matching is None:
            raise LocalProtocolError("This client takes no part in matching.")
        return self.papers.matching

    def _take_match(self, letter: Letter) -> list[Parcel]:
        """Answer one step of matching."""
        self.move(Event.MATCH)
        side, header, papers = self._side, letter.header, self.papers
        where = side.where
        place = (header.round, header.exchange, where.members, header.given, header.attempt)
        side.check(Where(*place))
        if header.cohort != papers.cohort(where):
            raise BadEnvelope("What was matched belongs to another cohort.")
        name = letter.item.exchange
        (message,) = self._inbox.read(letter, (Box,))
        if not isinstance(message, Box):
            raise LocalProtocolError("This is no box.")
        steps = {
            Step.HALFWAY: self._halfway,
            Step.TAGGED: self._tagged,
            Step.TOLD: self._told,
            Step.MATES: self._mates,
        }
        step, said = steps[letter.item.step](name, message.boxes)
        return [self.send(self._item(name, step), [said], header.sender, where)]

    def _item(self, name: str, step: Step) -> Item:
        return self.papers.find(name, Disclosure.MATCH, step)

    def _halfway(self, name: str, boxes: bytes) -> tuple[Step, Message]:
        return Step.ONWARD, Box(boxes=self._side.forward(boxes))

    def _tagged(self, name: str, boxes: bytes) -> tuple[Step, Message]:
        side = self._side
        found = side.hand_over(boxes)
        # Before the tags leave: whoever gets another key may never be told of its cell (O24).
        facts = {"canary": side.digest, "exchange": side.where.exchange, "round": side.where.round}
        self.ledger.record("canary", facts)
        return Step.TAGS, Box(boxes=found)

    def _told(self, name: str, boxes: bytes) -> tuple[Step, Message]:
        side, roster = self._side, self.papers.roster
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

    def _found(self, kind: type[Message], told: CellTotals | Listed, where: Where) -> Message:
        """Return what was found as the message that the algorithm reads."""
        return self._side.found(kind, told, self.papers.plan.dims, where)

    def _compared(self, name: str, side: MatchSide) -> None:
        """Put the canary's digest into the ledger, for an audit to compare with all others'."""
        facts = {
            "canary": side.digest,
            "cells": side.cells,
            "exchange": side.where.exchange,
            "round": side.where.round,
        }
        self.ledger.record("match", facts)
        if self.recorder is not None:
            self.recorder.tagged(name, side.where, side.tagged)
