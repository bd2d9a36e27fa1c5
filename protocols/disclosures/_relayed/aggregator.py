"""The aggregator's part while a relay takes the senders off (O23).

It never opens what the clients sent: it hands the bodies of those who answered to the relay, and
reads the boxes that come back, in which nothing names a sender. If the relay does not answer, the
round is lost; no second batch of the same answers is ever put together.
"""

from __future__ import annotations

from typing import ClassVar

from protocols.disclosures._relayed.boxes import Relayed, box_info, boxes_each, cut_boxes, opened
from protocols.disclosures._relayed.messages import Batch, Pool
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, RoundLost, WrongStage
from protocols.plan.steps import Step
from protocols.sessions.asking import Asked
from protocols.sessions.engine import Phase
from protocols.sessions.part import IDLE, Delivery, Engine, SessionPart, Stages, Takes
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role

_RELAYING = "relaying"
_RELAYED = (Disclosure.MIXED, Disclosure.NOISED)


class Unlinking(SessionPart):
    """Has the senders taken off an Ask's answers; its phase is UNLINK.

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
    def _waiting(self) -> dict[Disclosure, Relayed]:
        """Return the answers that pass through a relay, by disclosure."""
        answers = self._asked.answers
        found = {part: answers.get(part, Relayed) for part in _RELAYED}
        return {part: one for part, one in found.items() if one is not None and one.relayed}

    def wanted(self) -> bool:
        """Tell whether answers came back that go to a relay first."""
        return bool(self._waiting)

    def enter(self) -> list[Delivery]:
        """Give the relay everything that the survivors of an Ask sealed to it, and forget it."""
        self.go(_RELAYING)
        return [self._batch(part, answers) for part, answers in self._waiting.items()]

    def _batch(self, part: Disclosure, answers: Relayed) -> Delivery:
        asked, context = self._asked.answers, self._context
        item = context.find(asked.exchange.name, part, Step.RELAY)
        kept = answers.handed_over().values()
        headers = b"".join(one.header for one in kept)
        bodies = b"".join(one.body for one in kept)
        batch = Batch(
            members=context.roster.mask(asked.where.members),
            headers=headers.ljust(item.dims["batch_headers"], b"\0"),
            bodies=bodies.ljust(item.dims["batch"], b"\0"),
        )
        relay = context.roster.one(Role.RELAY).name
        return self._engine.send(item, [batch], relay, asked.where)

    def _take_pool(self, incoming: Incoming) -> None:
        """Read the boxes of all survivors, as many as their plan says.

        Raises:
            WrongStage: none were asked for.
            BadEnvelope: too few or too many, one twice, or one that is not of this Ask.
        """
        asked, context = self._asked.answers, self._context
        name, part = incoming.item.exchange, incoming.item.part
        if self.stage != _RELAYING or name != asked.exchange.name:
            raise WrongStage("A pool of boxes arrived while none was asked for.")
        asked.check_place(incoming)
        pool, answers = self._engine.read_one(incoming, Pool), asked.of(part, Relayed)
        up = context.find(name, part, Step.UP)
        each = boxes_each(context.plan, up)
        size = up.body // each
        data, used = pool.boxes, each * len(answers.survivors) * size
        there = all(any(data[start : start + size]) for start in range(0, used, size))
        if not there or any(data[used:]):
            raise BadEnvelope(
                "The relay returned another number of boxes than the clients sent (O23)."
            )
        boxes = cut_boxes(data[:used], size)
        info = box_info(context, up.id, asked.where)
        answers.pooled(opened(boxes, context.me.opening, info))

    def advance(self) -> None:
        """Raise RoundLost unless the relay answered."""
        if any(answers.pool is None for answers in self._waiting.values()):
            raise RoundLost(
                "The relay did not return the messages of a cohort. The round is skipped.",
                why="it is not reachable, or ended its session",
                fix="the next round goes on when it is there; these are never relayed again",
            )

    takes: ClassVar[Takes] = dict.fromkeys(((part, Step.RELAYED) for part in _RELAYED), _take_pool)
