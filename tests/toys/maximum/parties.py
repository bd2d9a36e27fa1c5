"""What the key authority does to open a maximum."""

from __future__ import annotations

import hashlib
from typing import ClassVar

import numpy as np

from protocols.disclosures.maximum.disclosure import MaximumView, Raised, box_info
from protocols.disclosures.maximum.messages import SecondShares, SecondTotal
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope
from protocols.keys.pairs import BOX_OVERHEAD, open_box
from protocols.plan.steps import Step
from protocols.sessions.engine import Answering
from protocols.sessions.part import Delivery, Engine, Event, SessionPart, Takes
from protocols.sessions.survivors import Openings
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming
from protocols.wire.roster import as_set, within

# The key authority's part in a maximum: it adds second shares, and returns their total alone.

_MAXIMUM = Disclosure("MAXIMUM")


class LevelTotals(SessionPart):
    """Adds one Ask's second shares, once, over a cohort that every member signed (O5).

    Args:
        engine: the session.
        answering: makes durable what is about to be opened.
        openings: what was opened before.
    """

    def __init__(self, engine: Engine, answering: Answering, openings: Openings) -> None:
        super().__init__(engine)
        self._answering, self._openings = answering, openings

    def _open(self, incoming: Incoming) -> list[Delivery]:
        """Return the total of the second shares of one Ask's survivors."""
        self._engine.move(Event.STEP)
        context, header, name = self._context, incoming.header, incoming.item.exchange
        request = self._engine.read_one(incoming, SecondShares)
        members = context.roster.unmask(request.members)
        survivors = context.roster.unmask(request.survivors)
        where = Where(header.round, header.exchange, members, header.given, header.attempt)
        if header.cohort != context.cohort(where) or not within(survivors, as_set(members)):
            raise BadEnvelope("The cohort is not the one that its header names.")
        context.policy.check_cohort(len(survivors))
        item = context.find(name, _MAXIMUM, Step.OPENED)
        total = self._added(request.boxes, incoming, survivors, item.dims["level_total"])
        if self._answering.again:  # only what was recorded before
            self._openings.check_recorded(header, _MAXIMUM)
        else:
            digest = hashlib.sha256(request.boxes).hexdigest()
            self._openings.once(header, members, survivors, _MAXIMUM, None, digest)
            # Durable before anything is told: a restart must not open another (O5).
            self._answering.before_opening(incoming)
        return [self._engine.send(item, [SecondTotal(total=total)], header.sender, where)]

    def _added(
        self, boxes: bytes, incoming: Incoming, survivors: tuple[str, ...], each: int
    ) -> bytes:
        """Open every survivor's box and add what is inside, mod 2^64.

        Raises:
            BadEnvelope: a box that its client did not seal for this very Ask and cohort, or bytes
                behind the boxes.
        """
        context, size = self._context, each + BOX_OVERHEAD
        upload = context.find(incoming.item.exchange, _MAXIMUM, Step.UP).id
        total = np.zeros(each // 8, dtype=np.uint64)
        if any(boxes[size * len(survivors) :]):
            raise BadEnvelope("There are bytes behind the boxes.")
        for place, name in enumerate(survivors):
            box, sender = boxes[place * size : (place + 1) * size], context.roster.party(name)
            share = open_box(box, context.me, sender, box_info(incoming.header, upload, name))
            total += np.frombuffer(share, dtype="<u8")
        return total.astype("<u8").tobytes()

    takes: ClassVar[Takes] = {(_MAXIMUM, Step.OPEN): _open}


KEY_AUTHORITY = LevelTotals


KEPT = (MaximumView, Raised)
