"""What aggregator and key authority say to each other while a maximum is opened."""

from __future__ import annotations

from protocols.messages import SealedMessage, blob


class SecondShares(SealedMessage):
    """Aggregator to key authority: add these second shares, as the clients sealed them."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    survivors: bytes = blob("roster_mask", unit="bit", meaning="bit i: its box is here")
    boxes: bytes = blob("level_boxes", unit="byte", meaning="one HPKE box per survivor, padded")


class SecondTotal(SealedMessage):
    """Key authority to aggregator: the total of the second shares."""

    total: bytes = blob("level_total", unit="byte", meaning="one number a level, uniform noise")


MESSAGES = (SecondShares, SecondTotal)
