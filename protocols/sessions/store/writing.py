"""One cell of a state: written down only where it cannot be told to be what it was.

What can never change (numbers, texts, bytes, messages, tuples of them) is known by being the very
object that was written last, and a list or dictionary of such values by holding the very objects.
"""

from __future__ import annotations

from enum import Enum
from operator import is_
from typing import Any, Final

import numpy as np

from crypto.homomorphic.bfv_parts import PublicKey, SecretKey
from protocols.messages import Message
from protocols.sessions.store.codec import Apart, Buffer, StateCodec
from protocols.sessions.store.fields import attributes
from protocols.sessions.store.kept_kinds import objects

__all__ = ["Cell", "Writing", "is_frozen", "is_same"]

_SCALARS: Final = frozenset({type(None), bool, int, str, bytes})
_FIXED: Final = (Enum, np.generic, type, PublicKey, SecretKey)
_NONE: Final[frozenset[str]] = frozenset()


class Cell:
    """One cell as it was written last.

    Attributes:
        number: in its leaf.
        fixed: whether its value can never change, or is a list or dictionary of such values.
        value: what it holds, if that is so; of a list or dictionary, a copy.
        data: its bytes.
        parts: names of the long values that it names.
    """

    __slots__ = ("data", "fixed", "number", "parts", "value")

    def __init__(
        self, number: int, data: bytes, parts: frozenset[str] = _NONE, fixed: tuple[Any, ...] = ()
    ) -> None:
        self.number, self.data, self.parts = number, data, parts
        self.fixed, self.value = bool(fixed), fixed[0] if fixed else None


class Writing:
    """Writes values down, and notes which long ones they name."""

    def __init__(self, codec: StateCodec, apart: Apart) -> None:
        self._codec, self._apart = codec, apart
        self._parts: set[str] = set()
        self.names = codec.names

    def _noted(self, data: Buffer) -> str:
        name = self._apart(data)
        self._parts.add(name)
        return name

    def cell(self, known: Cell | None, kind: bytes, value: Any, content: Any) -> Cell | None:
        """Return a cell, which is numbered as the known one; None if it is still that one.

        Args:
            known: as it was written last.
            kind: what its bytes begin with.
            value: what it is about.
            content: what is written down of it.
        """
        if known is not None and known.fixed and is_same(known.value, value):
            return None
        self._parts.clear()
        data = kind + self._codec.pack(content, self._noted)
        fixed = self._fixed(value)
        if known is not None and data == known.data:
            known.fixed, known.value = bool(fixed), fixed[0] if fixed else None
            return None
        number = known.number if known is not None else 0
        return Cell(number, data, frozenset(self._parts) if self._parts else _NONE, fixed)

    def _fixed(self, value: Any) -> tuple[Any, ...]:
        """Return what a value is compared with the next time; nothing if that cannot be said."""
        if type(value) is list:
            return (value[:],) if all(map(self._is_fixed, value)) else ()
        if type(value) is dict:
            inside = all(map(self._is_fixed, value)) and all(map(self._is_fixed, value.values()))
            return (dict(value),) if inside else ()
        return (value,) if self._is_fixed(value) else ()

    def _is_fixed(self, value: Any) -> bool:
        """Tell whether a value can never change."""
        kind = type(value)
        if kind in _SCALARS or kind is float:
            return True
        if kind is tuple or kind is frozenset:
            return all(map(self._is_fixed, value))
        if isinstance(value, Message):  # frozen itself; an array in it may be another's as well
            return not any(map(_is_open, attributes(value).values()))
        if isinstance(value, _FIXED) or self._codec.names(value):
            return True
        return is_frozen(kind) and all(map(self._is_fixed, attributes(value).values()))


def is_same(before: Any, value: Any) -> bool:
    """Tell whether a value is what it was: the very same objects, or the same bytes and numbers."""
    kind = type(value)
    if before is value:
        return kind is not list and kind is not dict
    if type(before) is not kind:
        return False
    if kind is list:
        return len(before) == len(value) and all(map(is_, before, value))
    if kind is dict:
        sames = all(map(is_, before, value)) and all(map(is_, before.values(), value.values()))
        return len(before) == len(value) and sames
    return kind in _SCALARS and bool(before == value)


def _is_open(value: Any) -> bool:
    """Tell whether whoever holds an array may change it."""
    return isinstance(value, np.ndarray) and value.flags.writeable


def is_frozen(kind: Any) -> bool:
    """Tell whether objects of a class of ours never change themselves."""
    facts = getattr(kind, "__dataclass_params__", None)
    return facts is not None and facts.frozen and objects().get(kind.__name__) is kind
