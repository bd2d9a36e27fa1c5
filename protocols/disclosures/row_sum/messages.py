"""What travels for rows beside the boxes of tags, which are those of `match`."""

from __future__ import annotations

from protocols.messages import SealedMessage, blob


class RowParts(SealedMessage):
    """Client to aggregator: its sums, under masks and blinds; slots of a fixed number."""

    slots: bytes = blob("row_slots", unit="byte", meaning="label, receiver, adders, words mod 2^32")


class RowTotals(SealedMessage):
    """Aggregator to client: what was added up for it, still under its blinds."""

    slots: bytes = blob("row_slots", unit="byte", meaning="label, receiver, adders, words mod 2^32")


MESSAGES = (RowParts, RowTotals)
