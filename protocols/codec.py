"""Bundles of messages to bytes and back: fixed size, no tags, nothing to interpret.

Sender and receiver both hold the plan, so the bytes are just the fields in the plan's order,
little-endian. A bundle has exactly one valid length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from protocols.errors import BadEnvelope, UnfitMessage
from protocols.messages import Field, Message

_WIDTH = {"f4": 4, "f8": 8, "u8": 8, "bytes": 1}
WIRE_DTYPE = {"f4": "<f4", "f8": "<f8", "u8": "<u8"}


def field_bytes(field: Field, dims: Mapping[str, int]) -> int:
    """Return the encoded size of one field."""
    return int(np.prod(field.sizes(dims), dtype=np.int64)) * _WIDTH[field.wire]


def bundle_bytes(kinds: Sequence[type[Message]], dims: Mapping[str, int]) -> int:
    """Return the encoded size of a bundle of these message types."""
    return sum(field_bytes(field, dims) for kind in kinds for field in kind.fields)


def encode(messages: Sequence[Message], dims: Mapping[str, int]) -> bytes:
    """Return the fields of `messages`, in order.

    Raises:
        UnfitMessage: a field's shape, type or finiteness is not as declared.
    """
    return b"".join(_field(m, f, dims) for m in messages for f in type(m).fields)


def _field(message: Message, field: Field, dims: Mapping[str, int]) -> bytes:
    name = f"{type(message).__name__}.{field.name}"
    value = getattr(message, field.name)
    if field.wire == "bytes":
        if not isinstance(value, bytes) or len(value) != field_bytes(field, dims):
            raise UnfitMessage(f"{name} does not have the planned number of bytes.")
        return value
    array = np.asarray(value)
    if array.shape != field.sizes(dims):
        raise UnfitMessage(
            f"{name} does not have the planned shape {field.sizes(dims)}.",
            fix="plan again with this model and data",
        )
    if field.wire == "u8":
        if array.dtype.kind not in "iu" or np.any(array < 0):
            raise UnfitMessage(f"{name} is not a non-negative integer.")
    elif array.dtype.kind not in "fiu" or not np.all(np.isfinite(array)):
        raise UnfitMessage(f"{name} holds NaN, Inf or something that is not a number.")
    return array.astype(WIRE_DTYPE[field.wire]).tobytes()


def decode(
    kinds: Sequence[type[Message]], data: bytes, dims: Mapping[str, int]
) -> tuple[Message, ...]:
    """Read a bundle; raises BadEnvelope unless `data` has exactly the planned length."""
    if len(data) != bundle_bytes(kinds, dims):
        raise BadEnvelope("A message does not have the planned length.")
    messages, start = [], 0
    for kind in kinds:
        values: dict[str, Any] = {}
        for field in kind.fields:
            end = start + field_bytes(field, dims)
            values[field.name] = _value(field, data[start:end], dims)
            start = end
        messages.append(kind(**values))
    return tuple(messages)


def _value(field: Field, data: bytes, dims: Mapping[str, int]) -> Any:
    if field.wire == "bytes":
        return data
    array = np.frombuffer(data, dtype=WIRE_DTYPE[field.wire]).reshape(field.sizes(dims))
    if field.wire != "u8" and not np.all(np.isfinite(array)):
        raise BadEnvelope("A message holds NaN or Inf.")
    if field.shape:
        return array
    return int(array) if field.wire == "u8" else float(array)
