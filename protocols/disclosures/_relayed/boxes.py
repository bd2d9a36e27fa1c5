"""Boxes that a relay puts in order and only the aggregator opens (O23).

Nothing in a box, around it or in its info names its sender, so nobody signs a single box either.
Info binds it to run, plan, item, place in the run, cohort and what the cohort was given: a box of
elsewhere does not open. Whoever shuffles can replace boxes by its own, one for one; it cannot
change one, and how many there must be is known to whoever opens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crypto.errors import CryptoError
from crypto.hpke import OpeningKey
from crypto.samplers import Stream, entropy
from crypto.signing.canonical import canonical
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope
from protocols.plan.plan import Item, Plan
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


def box_info(context: RunContext, item: str, where: Where) -> bytes:
    """Return what every box of one Ask is bound to: the same for the whole cohort."""
    numbers = [where.round, where.exchange, where.attempt]
    place = [context.run, context.plan_digest, item, *numbers, context.cohort(where), where.given]
    return b"secure-fgl/relayed-box\0" + canonical(place)


def boxes_each(plan: Plan, up: Item) -> int:
    """Return how many boxes every client sends: one message, or as many as there may be mixtures.

    The named size says it and no message does, so it is the same for all clients.
    """
    return plan.dims["mixtures"] if up.disclosure is Disclosure.MIXED else 1


def cut_boxes(data: bytes, size: int) -> list[bytes]:
    """Return boxes that stand one after the other; raises BadEnvelope if one is there twice."""
    boxes = [data[start : start + size] for start in range(0, len(data), size)]
    if len(set(boxes)) != len(boxes):
        raise BadEnvelope("A box of a batch is there twice (O23).")
    return boxes


def shuffled(boxes: Sequence[bytes]) -> list[bytes]:
    """Return the boxes in an order from the operating system, every order as likely (O15).

    Sorted by 64-bit words; two equal ones, which would keep their order, come up for a million
    boxes once in 10^7 times.
    """
    order = np.argsort(Stream(entropy(32)).words(len(boxes)), kind="stable")
    return [boxes[place] for place in order]


def opened(boxes: Sequence[bytes], key: OpeningKey, info: bytes) -> list[bytes]:
    """Return what is in the boxes; raises BadEnvelope for one that was not sealed for this Ask."""
    found = []
    for box in boxes:
        try:
            found.append(key.open(info, box))
        except CryptoError as error:
            raise BadEnvelope(
                "A box of a batch does not open.",
                why="a client or the relay sealed it for another Ask, or changed it; nobody can "
                "tell which client's it is",
            ) from error
    return found
