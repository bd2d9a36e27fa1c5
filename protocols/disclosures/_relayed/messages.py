"""What goes to a relay and comes back from it."""

from __future__ import annotations

from protocols.messages import SealedMessage, blob


class Batch(SealedMessage):
    """Aggregator to relay: one Ask's messages, as the clients sealed them to the relay (O23)."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    headers: bytes = blob("batch_headers", unit="byte", meaning="the signed headers of all bodies")
    bodies: bytes = blob("batch", unit="byte", meaning="one sealed body per client that answered")


class Pool(SealedMessage):
    """Relay to aggregator: all boxes of all clients, in one order that tells no sender."""

    boxes: bytes = blob("pool", unit="byte", meaning="HPKE boxes to the aggregator, padding too")


MESSAGES = (Batch, Pool)
