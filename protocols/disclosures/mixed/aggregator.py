"""The aggregator's part while a relay takes the senders off mixtures (O23).

It never opens what the clients sent: it hands the bodies of those who answered to the relay, and
reads the boxes that come back, in which nothing names a sender. If the relay does not answer, the
round is lost; no second batch of the same answers is ever put together.
"""

from __future__ import annotations

from typing import ClassVar

from protocols.disclosures.mixed.boxes import cut_boxes, from_boxes, mixture_info
from protocols.disclosures.mixed.messages import Batch, Pool
from protocols.disclosures.mixed.view import Mixtures
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, RoundLost, WrongStage
from protocols.plan.steps import Step
from protocols.sessions.part import IDLE, Delivery, Engine, SessionPart, Stages, Takes
from protocols.sessions.phases import Phase
from protocols.sessions.services.asked import Asked
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role

_RELAYING = "relaying"


class Unlinking(SessionPart):
    """Has the senders taken off an Ask's mixtures; its phase is UNLINK.

    Args:
        engine: the session.
        asked: the Ask under way.
    """

    phase: ClassVar[int | None] = Phase.UNLINK
    stages: ClassVar[Stages] = {IDLE: {_RELAYING}}

    def __init__(self, engine: Engine, asked: Asked) -> None:
        super().__init__(engine)
        self._asked = asked

    @property
    def _mixtures(self) -> Mixtures:
        return self._asked.answers.of(Disclosure.MIXED, Mixtures)

    def wanted(self) -> bool:
        """Tell whether mixtures came back that go to a relay first."""
        found = self._asked.answers.get(Disclosure.MIXED, Mixtures)
        return found is not None and found.relayed

    def enter(self) -> list[Delivery]:
        """Give the relay everything that the survivors of an Ask sealed to it, and forget it."""
        self.go(_RELAYING)
        asked, context = self._asked.answers, self._context
        item = context.find(asked.exchange.name, Disclosure.MIXED, Step.RELAY)
        kept = self._mixtures.handed_over().values()
        headers = b"".join(one.header for one in kept)
        bodies = b"".join(one.body for one in kept)
        batch = Batch(
            members=context.roster.mask(asked.where.members),
            headers=headers.ljust(item.dims["batch_headers"], b"\0"),
            bodies=bodies.ljust(item.dims["batch"], b"\0"),
        )
        relay = context.roster.one(Role.RELAY).name
        return [self._engine.send(item, [batch], relay, asked.where)]

    def _take_pool(self, incoming: Incoming) -> None:
        """Read the boxes of all survivors, as many as their plan says.

        Raises:
            WrongStage: none were asked for.
            BadEnvelope: too few or too many, one twice, or one that is not of this Ask.
        """
        asked, context = self._asked.answers, self._context
        name = incoming.item.exchange
        if self.stage != _RELAYING or name != asked.exchange.name:
            raise WrongStage("A pool of mixtures arrived while none was asked for.")
        asked.check_place(incoming)
        pool, mixtures = self._engine.read_one(incoming, Pool), self._mixtures
        layout = mixtures.pool_layout()
        up = context.find(name, Disclosure.MIXED, Step.UP)
        size = up.body // context.plan.dims["mixtures"]
        data, used = pool.boxes, layout.most * size
        there = all(any(data[start : start + size]) for start in range(0, used, size))
        if not there or any(data[used:]):
            raise BadEnvelope(
                "The relay returned another number of boxes than the clients sent (O23)."
            )
        boxes = cut_boxes(data[:used], size)
        info = mixture_info(context, up.id, asked.where)
        mixtures.pool = from_boxes(boxes, layout, context.me.opening, info)
        layout.decode(mixtures.pool)  # refused here, while it is known who sent it

    def advance(self) -> None:
        """Raise RoundLost unless the relay answered."""
        if self._mixtures.pool is None:
            raise RoundLost(
                "The relay did not return the mixtures. The round is skipped.",
                why="it is not reachable, or ended its session",
                fix="the next round goes on when it is there; these are never relayed again",
            )

    takes: ClassVar[Takes] = {(Disclosure.MIXED, Step.RELAYED): _take_pool}


AGGREGATOR = Unlinking
