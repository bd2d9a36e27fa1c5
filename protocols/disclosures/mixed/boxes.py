"""Mixtures in boxes: every place of a body sealed alone, for a relay to take the sender off (O23).

A box is HPKE to the aggregator over a flag and one mixture. A place without a mixture holds zeros
and is sealed like all others, so neither the number nor the size of boxes tells how many mixtures a
client has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crypto.hpke import SEAL_OVERHEAD, SealingKey
from protocols.disclosures.mixed.layout import COUNT, MixLayout
from protocols.errors import BadEnvelope

_EMPTY, _FILLED = b"\0", b"\1"


def mixture_box_bytes(layout: MixLayout) -> int:
    """Return the size of one box."""
    return len(_FILLED) + sum(layout.parts) + SEAL_OVERHEAD


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


def from_boxes(contents: Sequence[bytes], layout: MixLayout) -> bytes:
    """Return the body of one message that holds all mixtures of boxes, in the boxes' order.

    Args:
        contents: of a whole cohort's boxes.
        layout: with as many places as there are boxes.

    Raises:
        BadEnvelope: a box that holds no place.
    """
    filled = []
    for one in contents:
        flag, content = one[:1], one[1:]
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
