"""What of an object is kept, and how plain pieces of a kept state are told apart."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache, cached_property
from typing import Any

LENGTH = struct.Struct("<Q")


def attributes(value: Any) -> dict[str, Any]:
    """Return everything an object holds, but for what it can compute again."""
    kind: Any = type(value)
    slots, cached = _places(kind)
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    held |= getattr(value, "__dict__", {})
    return {k: v for k, v in held.items() if k not in cached}


@cache
def _places(kind: type[Any]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return a class's slots, and the names of what its objects compute once."""
    slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    found = {name for base in kind.__mro__ for name in vars(base)}
    cached = {k for k in found if isinstance(getattr(kind, k, None), cached_property)}
    return tuple(slots), frozenset(cached)


def is_flat(rows: Iterable[Any]) -> bool:
    """Tell whether these are tuples of texts and whole numbers, which JSON holds as they are."""
    return all(type(row) is tuple and {str, int}.issuperset(map(type, row)) for row in rows)


def next_part(data: bytes, place: int) -> tuple[bytes, int]:
    """Return the part that begins at a place of some bytes, and where the next one begins."""
    (size,) = LENGTH.unpack_from(data, place)
    start = place + LENGTH.size
    return data[start : start + size], start + size
