"""What the coordinator hands on to a client: its neighbours' boxes."""

from __future__ import annotations

from protocols.messages import SealedMessage, blob


class NeighbourBoxes(SealedMessage):
    """Coordinator to client: what its neighbours sealed for it; the coordinator opens none."""

    boxes: bytes = blob(
        "neighbour_boxes", unit="byte", meaning="one box a neighbour, sorted; zeros of who was away"
    )


MESSAGES = (NeighbourBoxes,)
