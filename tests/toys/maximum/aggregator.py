"""The aggregator's part in a maximum: it has the second shares added, and adds the first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from protocols.disclosures.maximum.disclosure import Raised
from protocols.disclosures.maximum.messages import SecondShares, SecondTotal
from protocols.disclosures.names import Disclosure
from protocols.errors import RoundLost, WrongStage
from protocols.plan.steps import Step
from protocols.sessions.asking import Asked
from protocols.sessions.engine import Phase
from protocols.sessions.part import IDLE, Delivery, Engine, SessionPart, Stages, Takes
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role

_MAXIMUM = Disclosure("MAXIMUM")


_REVEALING = "revealing"


class Maximising(SessionPart):
    """Has the totals of an Ask's levels opened, once; its phase is COMPARE.

    Args:
        engine: the session.
        asked: the Ask under way.
    """

    phase: ClassVar[int | None] = Phase.COMPARE
    stages: ClassVar[Stages] = {IDLE: {_REVEALING}}

    def __init__(self, engine: Engine, asked: Asked) -> None:
        super().__init__(engine)
        self._asked = asked

    @property
    def _raised(self) -> Raised:
        return self._asked.answers.of(_MAXIMUM, Raised)

    def wanted(self) -> bool:
        """Tell whether levels came back whose totals are to be opened."""
        found = self._asked.answers.get(_MAXIMUM, Raised)
        return found is not None and bool(found.top)

    def enter(self) -> list[Delivery]:
        """Add the first shares, and hand the boxes on."""
        self.go(_REVEALING)
        raised, context, asked = self._raised, self._context, self._asked.answers
        kept, size = raised.handed_over(), raised.share
        shares = [raised.words(one.body[:size]) for one in kept.values()]
        raised.first = np.sum(shares, axis=0, dtype=np.uint64)  # mod 2^64
        item = context.find(asked.exchange.name, _MAXIMUM, Step.OPEN)
        boxes = b"".join(one.body[size:] for one in kept.values())
        request = SecondShares(
            members=context.roster.mask(asked.where.members),
            survivors=context.roster.mask(asked.survivors),
            boxes=boxes.ljust(item.dims["level_boxes"], b"\0"),
        )
        authority = context.roster.one(Role.KEY_AUTHORITY).name
        return [self._engine.send(item, [request], authority, asked.where)]

    def _take_total(self, incoming: Incoming) -> None:
        asked = self._asked.answers
        if self.stage != _REVEALING:
            raise WrongStage("A total of levels arrived while none was asked for.")
        if incoming.item.exchange != asked.exchange.name:
            raise WrongStage("A total of levels belongs to another Ask.")
        asked.check_place(incoming)
        raised = self._raised
        if raised.first is None:
            raise WrongStage("A total of levels came twice.")
        second = raised.words(self._engine.read_one(incoming, SecondTotal).total)
        raised.totals, raised.first = raised.first + second, None

    def advance(self) -> None:
        """Raise RoundLost unless the key authority answered."""
        if self._raised.totals is None:
            raise RoundLost(
                "The key authority did not open a maximum. The round is skipped.",
                why="it is not reachable, or ended its session",
                fix="the next round goes on when it is there; this one is never opened again",
            )

    takes: ClassVar[Takes] = {(_MAXIMUM, Step.OPENED): _take_total}


AGGREGATOR = Maximising
