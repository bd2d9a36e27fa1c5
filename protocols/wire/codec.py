"""Bundles of messages to bytes and back: fixed size, no tags, nothing to interpret.

Sender and receiver both hold the plan, so the bytes are just the fields in the plan's order,
little-endian. A bundle has exactly one valid length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import BadEnvelope, UnfitMessage
from protocols.messages import Field, Message

_WIDTH = {"f4": 4, "f8": 8, "u8": 8, "bytes": 1}
WIRE_DTYPE = {"f4": "<f4", "f8": "<f8", "u8": "<u8", "bytes": "u1"}


def field_bytes(field: Field, dims: Mapping[str, int]) -> int:
    """Return the encoded size of one field."""
    size = _WIDTH[field.wire]
    for part in field.shape:  # several times an envelope: nothing is made for it
        size *= dims[part] if isinstance(part, str) else part
    return size


def bundle_bytes(kinds: Sequence[type[Message]], dims: Mapping[str, int]) -> int:
    """Return the encoded size of a bundle of these message types."""
    return sum(field_bytes(field, dims) for kind in kinds for field in kind.fields)


def encode(
    messages: Sequence[Message],
    dims: Mapping[str, int],
    known: Mapping[Message, bytes] | None = None,
) -> bytes:
    """Return the fields of `messages`, in order.

    Args:
        messages: what is encoded.
        dims: sizes of named dimensions.
        known: those of them that were encoded before, with their bytes.

    Raises:
        UnfitMessage: a field's shape, type or finiteness is not as declared.
    """
    ready, parts = known or {}, list[bytes]()
    for message in messages:
        if message in ready:
            parts.append(ready[message])
        else:
            parts += [_field(message, field, dims) for field in type(message).fields]
    return b"".join(parts)


def pieces(
    kinds: Sequence[type[Message]], data: bytes, dims: Mapping[str, int]
) -> list[memoryview]:
    """Return each message's part of a bundle that `decode` read, uncopied."""
    view, start, found = memoryview(data), 0, list[memoryview]()
    for kind in kinds:
        end = start + bundle_bytes((kind,), dims)
        found.append(view[start:end])
        start = end
    return found


def _field(message: Message, field: Field, dims: Mapping[str, int]) -> bytes:
    name = f"{type(message).__name__}.{field.name}"
    value = getattr(message, field.name)
    if field.wire == "bytes" and len(field.shape) == 1:
        if not isinstance(value, bytes) or len(value) != field_bytes(field, dims):
            raise UnfitMessage(f"{name} does not have the planned number of bytes.")
        return value
    if field.wire == "u8" and not field.shape and type(value) is int and 0 <= value < 1 << 64:
        return value.to_bytes(8, "little")
    array = as_array(value, name)
    if array.shape != field.sizes(dims):
        raise UnfitMessage(
            f"{name} does not have the planned shape {field.sizes(dims)}.",
            fix="plan again with this model and data",
        )
    if field.wire == "bytes":
        if array.dtype != np.uint8:
            raise UnfitMessage(f"{name} is not an array of bytes.")
        return array.tobytes()
    if field.wire == "u8":
        if array.dtype.kind not in "iu" or np.any(array < 0):
            raise UnfitMessage(f"{name} is not a non-negative integer.")
        return array.astype("<u8").tobytes()
    if array.dtype.kind not in "fiu":
        raise UnfitMessage(f"{name} is not a real number.")
    with np.errstate(over="ignore"):  # a value beyond f4 becomes Inf, which is refused below
        cast = array.astype(WIRE_DTYPE[field.wire])
    if not np.isfinite(cast).all():
        raise UnfitMessage(
            f"{name} holds NaN, Inf or a value too large to be sent.",
            why="training diverged, or the data holds such values",
            fix="lower the learning rate, or check the features; nothing was sent",
        )
    return cast.tobytes()


def as_array(value: Any, name: str) -> NDArray[Any]:
    """Return a value as an array; raises UnfitMessage for what is none (ragged lists, objects)."""
    try:
        return np.asarray(value)
    except ValueError as error:
        raise UnfitMessage(f"{name} is not an array of one shape.") from error


def decode(
    kinds: Sequence[type[Message]], data: bytes, dims: Mapping[str, int]
) -> tuple[Message, ...]:
    """Read a bundle; raises BadEnvelope unless `data` has exactly the planned length."""
    sizes = [[field_bytes(field, dims) for field in kind.fields] for kind in kinds]
    if len(data) != sum(map(sum, sizes)):
        raise BadEnvelope("A message does not have the planned length.")
    messages, start = [], 0
    for kind, widths in zip(kinds, sizes, strict=True):
        values: dict[str, Any] = {}
        for field, width in zip(kind.fields, widths, strict=True):
            end = start + width
            values[field.name] = _value(field, data[start:end], dims)
            start = end
        messages.append(kind(**values))
    return tuple(messages)


def _value(field: Field, data: bytes, dims: Mapping[str, int]) -> Any:
    if field.wire == "bytes" and len(field.shape) == 1:
        return data
    if field.wire == "u8" and not field.shape:
        return int.from_bytes(data, "little")
    array = np.frombuffer(data, dtype=WIRE_DTYPE[field.wire]).reshape(field.sizes(dims))
    if field.wire in ("f4", "f8") and not np.isfinite(array).all():
        raise BadEnvelope("A message holds NaN or Inf.")
    return array if field.shape else float(array)
