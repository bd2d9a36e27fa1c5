"""Mixtures in boxes: every place of a body sealed alone, for a relay to take the sender off (O23).

A box is HPKE to the aggregator over a flag and one mixture. A place without a mixture holds zeros
and is sealed like all others, so neither the number nor the size of boxes tells how many mixtures a
client has. Nothing in a box, around it or in its info names its sender.

So nobody signs a single box either. Info binds it to run, plan, Ask, place in the run, cohort
and what the cohort was given: a box of elsewhere does not open. Whoever shuffles can replace boxes
by its own, one for one; it cannot change one, and how many there must be is known to whoever opens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crypto.errors import CryptoError
from crypto.hpke import SEAL_OVERHEAD, OpeningKey, SealingKey
from crypto.samplers import Stream, entropy
from crypto.signing.canonical import canonical
from protocols.disclosures.mixed.layout import COUNT, MixLayout
from protocols.errors import BadEnvelope
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where

_EMPTY, _FILLED = b"\0", b"\1"


def mixture_box_bytes(layout: MixLayout) -> int:
    """Return the size of one box."""
    return len(_FILLED) + sum(layout.parts) + SEAL_OVERHEAD


def mixture_info(context: RunContext, item: str, where: Where) -> bytes:
    """Return what every box of one Ask is bound to: the same for the whole cohort."""
    numbers = [where.round, where.exchange, where.attempt]
    place = [context.run, context.plan_digest, item, *numbers, context.cohort(where), where.given]
    return b"secure-fgl/mixture\0" + canonical(place)


def into_boxes(body: bytes, layout: MixLayout, key: SealingKey, info: bytes) -> bytes:
    """Return one box for each place of a body, sealed to `key`."""
    (count,) = COUNT.unpack_from(body)
    starts = COUNT.size + layout.most * np.cumsum([0, *layout.parts])
    boxes = []
    for place in range(layout.most):
        parts = [
            body[start + place * size : start + (place + 1) * size]
            for start, size in zip(starts, layout.parts, strict=False)
        ]
        flag = _FILLED if place < count else _EMPTY
        boxes.append(key.seal(info, b"".join((flag, *parts))))
    return b"".join(boxes)


def cut_boxes(data: bytes, size: int) -> list[bytes]:
    """Return boxes that stand one after the other; raises BadEnvelope if one is there twice."""
    boxes = [data[start : start + size] for start in range(0, len(data), size)]
    if len(set(boxes)) != len(boxes):
        raise BadEnvelope("A box of a mixture is there twice (O23).")
    return boxes


def shuffled(boxes: Sequence[bytes]) -> list[bytes]:
    """Return the boxes in an order from the operating system, every order as likely (O15).

    Sorted by 64-bit words; two equal ones, which would keep their order, come up for a million
    boxes once in 10^7 times.
    """
    order = np.argsort(Stream(entropy(32)).words(len(boxes)), kind="stable")
    return [boxes[place] for place in order]


def from_boxes(boxes: Sequence[bytes], layout: MixLayout, key: OpeningKey, info: bytes) -> bytes:
    """Return the body of one message that holds all mixtures in boxes, in the boxes' order.

    Args:
        boxes: of a whole cohort.
        layout: with as many places as there are boxes.
        key: of the aggregator.
        info: of the Ask.

    Raises:
        BadEnvelope: a box that was not sealed for this Ask, or holds no place.
    """
    filled = []
    for box in boxes:
        try:
            opened = key.open(info, box)
        except CryptoError as error:
            raise BadEnvelope(
                "A box of a mixture does not open.",
                why="a client or the relay sealed it for another Ask, or changed it; nobody can "
                "tell which client's it is",
            ) from error
        flag, content = opened[:1], opened[1:]
        if flag == _FILLED:
            filled.append(content)
        elif flag != _EMPTY or any(content):
            raise BadEnvelope("A box holds neither a mixture nor padding.")
    columns, start = [], 0
    for size in layout.parts:
        held = b"".join(content[start : start + size] for content in filled)
        columns.append(held.ljust(layout.most * size, b"\0"))
        start += size
    return COUNT.pack(len(filled)) + b"".join(columns)
