"""The coordinator's part between neighbours: it hands boxes on."""

from __future__ import annotations

from typing import ClassVar

from protocols.disclosures.neighbour_sum.disclosure import Neighbourly
from protocols.disclosures.neighbour_sum.messages import NeighbourBoxes
from protocols.messages import Message
from protocols.rounds import Given
from protocols.sessions.part import SessionPart


class Carrying(SessionPart):
    """Hands each client the boxes of its neighbours, as they came."""

    called: ClassVar[str] = "carrying"

    def handed(self, given: Given, member: str) -> Message | None:
        """Return the boxes for one client."""
        if not isinstance(given, Neighbourly):
            return None
        return NeighbourBoxes(boxes=given._deliveries[member])


AGGREGATOR = Carrying
