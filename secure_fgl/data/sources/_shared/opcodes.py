"""A closed reader of the pickles in which Planetoid's sets are published. It runs nothing.

`pickletools.genops` takes a pickle apart without acting on it. Of its instructions those that the
published files hold are acted on here (protocol 2, as Python 2 wrote it), on plain values: whole
numbers, texts, tuples, lists, tables, and three objects that are made here and nowhere else: an
array of numbers, its type, a sparse matrix. A name of anything else ends the reading; no name is
looked up. Sizes that a file declares must be those of the bytes that it holds.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.sources._shared.refusing import RawRefused

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["LIMIT", "read_objects"]

LIMIT = 1 << 28  # bytes; the largest published file of Planetoid's three sets has 5 MB
_RECONSTRUCT = "numpy.core.multiarray _reconstruct"
_NDARRAY, _DTYPE = "numpy ndarray", "numpy dtype"
_CSR = "scipy.sparse.csr csr_matrix"
_DEFAULTDICT, _LIST = "collections defaultdict", "__builtin__ list"
_NAMES = {_RECONSTRUCT, _NDARRAY, _DTYPE, _CSR, _DEFAULTDICT, _LIST}
_TYPES = {"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "b1"}
_SPARSE = {"_shape", "data", "format", "indices", "indptr"}
_FLAGS = {"maxprint", "_cs_matrix__has_sorted_indices", "_cs_matrix__has_canonical_format"}


class _Wrong(Exception):
    """The file is none of the published form; its text says where it leaves it."""


@dataclass(frozen=True)
class _Name:
    """A name that a file says; compared, never looked up."""

    text: str


@dataclass(eq=False)
class _Made:
    """An object whose content comes later: an array, a type or a sparse matrix."""

    kind: str
    code: str = ""
    value: Any = None


_MARK = object()


def read_objects(path: Path) -> Any:
    """Read one file.

    Returns:
        An array of numbers, a sparse matrix (CSR), or a dict of lists.

    Raises:
        RawRefused: it holds anything else, or is damaged.
    """
    with path.open("rb") as file:
        data = file.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise RawRefused(path, f"it is larger than {LIMIT} bytes")
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            machine.act(opcode.name, argument)
        return machine.result()
    except _Wrong as wrong:
        raise RawRefused(path, str(wrong)) from None
    except (LookupError, OverflowError, TypeError, UnicodeError, ValueError) as broken:
        raise RawRefused(path, "it is damaged or of another form") from broken


class _Machine:
    """The stack of a pickle, without anything that could be called."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def act(self, name: str, argument: Any) -> None:
        """Take one instruction; raises _Wrong for one that the published files do not hold."""
        if name in _PUSHED:
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name]())
        elif name in _TUPLES:
            parts = [self._stack.pop() for _ in range(_TUPLES[name])]
            self._stack.append(tuple(reversed(parts)))
        elif name in _ACTS:
            _ACTS[name](self, argument)
        elif name not in ("PROTO", "STOP"):
            raise _Wrong(f"it holds the instruction {name}, which could run code")

    def result(self) -> Any:
        """Return what the file holds, made whole."""
        if len(self._stack) != 1:
            raise _Wrong("it does not hold exactly one object")
        found = self._stack[0]
        return found if isinstance(found, dict) else _whole(found)

    def name(self, text: str) -> None:
        """Keep a name; raises _Wrong for any that is not one of the six."""
        if text not in _NAMES:
            raise _Wrong(f"it is a pickle that names {text[:60]!r}, which loading it could run")
        self._stack.append(_Name(text))

    def keep(self, place: int) -> None:
        """Keep the newest object under a number."""
        self._memo[place] = self._stack[-1]

    def again(self, place: int) -> None:
        """Push what was kept."""
        self._stack.append(self._memo[place])

    def since_mark(self) -> list[Any]:
        """Take everything down to the last mark."""
        found: list[Any] = []
        while (one := self._stack.pop()) is not _MARK:
            found.append(one)
        return found[::-1]

    def to_tuple(self, _: Any) -> None:
        """Put what lies above the mark into a tuple."""
        self._stack.append(tuple(self.since_mark()))

    def extend(self, parts: list[Any]) -> None:
        """Lengthen the list on top."""
        self._top(list).extend(parts)

    def update(self, parts: list[Any]) -> None:
        """Fill the table on top."""
        table = self._top(dict)
        for key, value in zip(parts[::2], parts[1::2], strict=True):
            if type(key) not in (int, str):
                raise _Wrong("a table has other keys than numbers or texts")
            table[key] = value

    def _top(self, kind: type) -> Any:
        if type(self._stack[-1]) is not kind:
            raise _Wrong("it fills what cannot be filled")
        return self._stack[-1]

    def new(self, _: Any) -> None:
        """Make an empty sparse matrix."""
        given, name = self._stack.pop(), self._stack.pop()
        if name != _Name(_CSR) or given != ():
            raise _Wrong("it makes an object of another kind")
        self._stack.append(_Made(_CSR))

    def reduce(self, _: Any) -> None:
        """Make an empty array, a type, or the table of a graph."""
        given, name = self._stack.pop(), self._stack.pop()
        if name == _Name(_RECONSTRUCT) and given == (_Name(_NDARRAY), (0,), "b"):
            self._stack.append(_Made(_NDARRAY))
        elif name == _Name(_DTYPE) and given in [(code, 0, 1) for code in _TYPES]:
            self._stack.append(_Made(_DTYPE, given[0]))
        elif name == _Name(_DEFAULTDICT) and given == (_Name(_LIST),):
            self._stack.append({})
        else:
            raise _Wrong("it calls something")

    def build(self, _: Any) -> None:
        """Give an object its content."""
        state, made = self._stack.pop(), self._stack[-1]
        if type(made) is not _Made or made.value is not None:
            raise _Wrong("it changes an object of another kind")
        made.value = _BUILDERS[made.kind](made, state)


def _dtype(made: _Made, state: Any) -> np.dtype[Any]:
    plain = [(3, order, None, None, None, -1, -1, 0) for order in "<>|"]
    if type(state) is not tuple or state not in plain:
        raise _Wrong("an array is not of plain numbers")
    return np.dtype(f"{state[1]}{made.code}")


def _array(_: _Made, state: Any) -> npt.NDArray[Any]:
    one, shape, kind, fortran, raw = state
    if one != 1 or type(shape) is not tuple or type(raw) is not str or type(fortran) is not bool:
        raise _Wrong("an array is not written as arrays are")
    if not 1 <= len(shape) <= 2 or any(type(n) is not int or n < 0 for n in shape):
        raise _Wrong("an array has no proper shape")
    dtype = _whole(kind)
    if not isinstance(dtype, np.dtype):
        raise _Wrong("an array has no type")
    if math.prod(shape) * dtype.itemsize != len(raw):
        raise _Wrong("an array declares another size than it has")
    flat = np.frombuffer(raw.encode("latin-1"), dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _sparse(_: _Made, state: Any) -> sp.csr_array:
    import scipy.sparse as sp

    if type(state) is not dict or not _SPARSE <= set(state) <= _SPARSE | _FLAGS:
        raise _Wrong("a sparse matrix is not written as they are")
    rows, columns = state["_shape"]
    parts = [_whole(state[name]) for name in ("data", "indices", "indptr")]
    if not all(isinstance(part, np.ndarray) and part.ndim == 1 for part in parts):
        raise _Wrong("a sparse matrix lacks a part")
    data, indices, indptr = parts
    if type(rows) is not int or type(columns) is not int or len(indptr) != rows + 1:
        raise _Wrong("a sparse matrix declares another size than it has")
    made = sp.csr_array((data, indices, indptr), shape=(rows, columns))
    made.check_format(full_check=True)
    return made


def _whole(made: Any) -> Any:
    if type(made) is not _Made or made.value is None:
        raise _Wrong("an object has no content")
    return made.value


_PUSHED = {"BININT", "BININT1", "BININT2", "SHORT_BINSTRING", "BINSTRING"}
_CONSTANTS: Mapping[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _MARK,
    "NEWFALSE": lambda: False,
    "NEWTRUE": lambda: True,
    "NONE": lambda: None,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_ACTS: Mapping[str, Callable[[_Machine, Any], None]] = {
    "APPEND": lambda m, _: m.extend([m._stack.pop()]),
    "APPENDS": lambda m, _: m.extend(m.since_mark()),
    "BINGET": _Machine.again,
    "BINPUT": _Machine.keep,
    "BUILD": _Machine.build,
    "GLOBAL": _Machine.name,
    "LONG_BINGET": _Machine.again,
    "LONG_BINPUT": _Machine.keep,
    "NEWOBJ": _Machine.new,
    "REDUCE": _Machine.reduce,
    "SETITEM": lambda m, _: m.update([m._stack.pop(-2), m._stack.pop()]),
    "SETITEMS": lambda m, _: m.update(m.since_mark()),
    "TUPLE": _Machine.to_tuple,
}
_BUILDERS: Mapping[str, Callable[[_Made, Any], Any]] = {
    _CSR: _sparse,
    _DTYPE: _dtype,
    _NDARRAY: _array,
}
