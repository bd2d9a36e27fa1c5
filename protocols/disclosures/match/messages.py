"""What travels while items are matched; the aggregator opens none of the boxes."""

from __future__ import annotations

from protocols.messages import ReleasedMessage, SealedMessage, blob, count


class Bundle(SealedMessage):
    """Aggregator to tag server or matcher, and back: one box per client, which it cannot open."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    bundle: bytes = blob("match_bundle", unit="byte", meaning="box of client i; zeros: none")


class Canary(SealedMessage):
    """Matcher to aggregator: the digest of the canary that all clients have (O24)."""

    canary: bytes = blob(32, unit="byte", meaning="digest of a public text's tag")


class Box(SealedMessage):
    """Boxes from or for one client while items are matched; the aggregator opens none."""

    boxes: bytes = blob("match_boxes", unit="byte", meaning="HPKE boxes, one after the other")


class CellBoxes(SealedMessage):
    """Client to aggregator: a share of its vector for each member of its cell (O25)."""

    cell: int = count(unit="cell", meaning="number of the client's cell")
    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i is in it")
    boxes: bytes = blob("match_boxes", unit="byte", meaning="one HPKE box per member, padded")


class CellPart(SealedMessage):
    """Client to aggregator: the sum of the shares that it holds, under the group's blind."""

    label: bytes = blob(32, unit="byte", meaning="hash of what its members drew at random")
    words: bytes = blob("cell_words", unit="byte", meaning="little-endian words of 32 bits")


class CellTotals(ReleasedMessage):
    """Aggregator to client: the totals of all cells, still blinded, and what all were matched by.

    The canary's digest is here so that all clients are seen to have been given one (O8).
    """

    canary: bytes = blob(32, unit="byte", meaning="digest of a public text's tag")
    there: bytes = blob("cell_mask", unit="bit", meaning="bit i: cell i is complete")
    labels: bytes = blob("cell_labels", unit="byte", meaning="32 of each cell; its blinds' label")
    totals: bytes = blob("cell_totals", unit="byte", meaning="words of 32 bits, cell by cell")


class Listed(ReleasedMessage):
    """Aggregator to client, in the form `published`: what all were matched by (O8, O24).

    The lists are with the clients by then; the matcher handed them over.
    """

    canary: bytes = blob(32, unit="byte", meaning="digest of a public text's tag")


MESSAGES = (Bundle, Canary, Box, CellBoxes, CellPart, CellTotals, Listed)
