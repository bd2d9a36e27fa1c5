"""Planetoid's raw files (Yang, Cohen and Salakhutdinov, ICML 2016), read without running them.

``ind.NAME.{x,tx,allx,y,ty,ally,graph}`` are pickles of Python 2: arrays, CSR matrices and a
dictionary of lists. What a pickle says is a list of instructions; :mod:`pickletools` names them and
does none. A closed interpreter follows those that build numbers, texts, lists, arrays and matrices,
and refuses every other instruction and every other name. Assembled as PyG's `read_planetoid_data`
does, so both give the same graph.
"""

from __future__ import annotations

import pickletools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from secure_fgl.data.sources._pickles import PickleRefused

__all__ = ["Raw", "read_object", "read_planetoid"]

LIMIT = 1 << 26  # bytes; the largest file of the three sets, PubMed's allx, has 10 MB
_TYPES = {"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "b1"}
_NAMES = {
    "scipy.sparse.csr csr_matrix": "matrix",
    "scipy.sparse._csr csr_matrix": "matrix",
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy ndarray": "",
    "numpy dtype": "type",
    "_codecs encode": "bytes",  # how Python 3 writes bytes in the protocol of Python 2
    "collections defaultdict": "dict",
    "__builtin__ list": "",
    "__builtin__ object": "",
    "builtins list": "",
}
"""Names that these files look up, and what is built when they are called; "" is never called."""
_MARK = object()

Numbers = npt.NDArray[Any]


@dataclass
class _Name:
    kind: str


@dataclass
class _Type:
    code: str
    order: str = "="


@dataclass
class _Array:
    found: Numbers | None = None


@dataclass
class _Matrix:
    state: dict[str, Any] | None = None


class Raw:
    """One graph as the files hold it.

    Attributes:
        x: features, (N, F).
        y: classes, (N,).
        arcs: (2, E), loops left out.
        masks: the published split, by role.
    """

    def __init__(self, x: Numbers, y: Numbers, arcs: Numbers, masks: Mapping[str, Numbers]) -> None:
        self.x, self.y, self.arcs, self.masks = x, y, arcs, masks


def read_object(data: bytes) -> Any:
    """Return the array, CSR matrix or dictionary of lists that a pickle describes.

    Raises:
        PickleRefused: it says anything else.
    """
    if len(data) > LIMIT:
        raise PickleRefused(f"a raw file is larger than {LIMIT} bytes")
    try:
        return _plain(_Reader().read(data))
    except PickleRefused:
        raise
    except Exception as broken:  # a damaged or hostile file may break any instruction
        raise PickleRefused("a raw file does not hold an array, a matrix or lists") from broken


class _Reader:
    """Follows the instructions of one pickle, on a stack of its own."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self, data: bytes) -> Any:
        for code, argument, _ in pickletools.genops(data):
            if code.name == "STOP":
                (found,) = self._stack
                return found
            step = getattr(self, f"_{code.name.lower()}", None)
            if step is not None:
                step()
            elif code.name in _VALUES:
                self._stack.append(argument)
            elif code.name in _CONSTANTS:
                self._stack.append(_CONSTANTS[code.name]())
            elif code.name in ("BINPUT", "LONG_BINPUT"):
                self._memo[int(argument or 0)] = self._stack[-1]
            elif code.name in ("BINGET", "LONG_BINGET"):
                self._stack.append(self._memo[int(argument or 0)])
            elif code.name == "GLOBAL" and argument in _NAMES:
                self._stack.append(_Name(_NAMES[argument]))
            elif code.name != "PROTO":
                raise PickleRefused("a raw file asks for more than numbers: it could run code")
        raise PickleRefused("a raw file ends too early")

    def _marked(self) -> list[Any]:
        place = max(i for i, value in enumerate(self._stack) if value is _MARK)
        found = self._stack[place + 1 :]
        del self._stack[place:]
        return found

    def _tuple(self) -> None:
        self._stack.append(tuple(self._marked()))

    def _tuple1(self) -> None:
        self._cut(1)

    def _tuple2(self) -> None:
        self._cut(2)

    def _tuple3(self) -> None:
        self._cut(3)

    def _cut(self, count: int) -> None:
        found = tuple(self._stack[-count:])
        if len(found) != count:
            raise PickleRefused("a raw file takes more than it gave")
        self._stack[-count:] = [found]

    def _append(self) -> None:
        value = self._stack.pop()
        self._of(list).append(value)

    def _appends(self) -> None:
        values = self._marked()
        self._of(list).extend(values)

    def _setitem(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._of(dict)[key] = value

    def _setitems(self) -> None:
        values = self._marked()
        self._of(dict).update(zip(values[::2], values[1::2], strict=True))

    def _of(self, kind: type[Any]) -> Any:
        if type(self._stack[-1]) is not kind:
            raise PickleRefused("a raw file fills something that is no list")
        return self._stack[-1]

    def _newobj(self) -> None:
        self._call(("matrix",))

    def _reduce(self) -> None:
        self._call(("array", "bytes", "dict", "type"))

    def _call(self, allowed: tuple[str, ...]) -> None:
        arguments, name = self._stack.pop(), self._stack.pop()
        if not isinstance(name, _Name) or name.kind not in allowed:
            raise PickleRefused("a raw file calls something: it could run code")
        made: dict[str, Any] = {"array": _Array, "matrix": _Matrix, "dict": dict}
        if name.kind == "type":
            self._stack.append(_Type(str(arguments[0])))
        elif name.kind == "bytes":
            self._stack.append(str(arguments[0]))
        else:
            self._stack.append(made[name.kind]())

    def _build(self) -> None:
        state, built = self._stack.pop(), self._stack[-1]
        if isinstance(built, _Type):
            built.order = state[1]
        elif isinstance(built, _Array):
            built.found = _array(*state)
        elif isinstance(built, _Matrix) and type(state) is dict:
            built.state = state
        else:
            raise PickleRefused("a raw file sets the state of something unknown")


_VALUES = {
    *("BININT", "BININT1", "BININT2", "BINFLOAT", "LONG1", "INT"),
    *("BINSTRING", "SHORT_BINSTRING", "BINUNICODE"),
}
"""Instructions whose argument is the value."""
_CONSTANTS: dict[str, Any] = {
    "MARK": lambda: _MARK,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}


def _array(version: int, shape: tuple[int, ...], kind: _Type, columns: bool, raw: str) -> Numbers:
    """Return an array of numbers; its bytes stand in the file, so none is larger than that."""
    if version != 1 or not isinstance(kind, _Type) or kind.code not in _TYPES:
        raise PickleRefused("a raw file holds an array of something else than numbers")
    if kind.order not in ("<", "=", "|"):
        raise PickleRefused("a raw file holds numbers in another order of bytes")
    flat = np.frombuffer(raw.encode("latin-1"), dtype=np.dtype(kind.code))
    if any(type(side) is not int or side < 0 for side in shape) or flat.size != np.prod(shape):
        raise PickleRefused("a raw file holds an array of another size than it says")
    return flat.reshape(shape, order="F" if columns else "C")


def _plain(found: Any) -> Any:
    if isinstance(found, _Array) and found.found is not None:
        return found.found
    if isinstance(found, _Matrix) and found.state is not None:
        parts = {name: _plain(found.state[name]) for name in ("data", "indices", "indptr")}
        rows, columns = (int(side) for side in found.state["_shape"])
        made = sp.csr_array(
            (parts["data"], parts["indices"], parts["indptr"]), shape=(rows, columns)
        )
        made.check_format(full_check=True)
        return made
    if type(found) is dict and all(_is_row(key, row) for key, row in found.items()):
        return found
    raise PickleRefused("a raw file holds neither an array, a matrix nor lists of numbers")


def _is_row(key: object, row: object) -> bool:
    return type(key) is int and type(row) is list and all(type(end) is int for end in row)


def read_planetoid(folder: Path, name: str) -> Raw:
    """Read the eight raw files of one set.

    Raises:
        OSError: one of them cannot be read.
        PickleRefused: one of them holds more than numbers.
        ValueError: they do not fit together.
    """

    def part(file: str) -> Any:
        with (folder / f"ind.{name.lower()}.{file}").open("rb") as opened:
            return read_object(opened.read(LIMIT + 1))

    index = np.loadtxt(folder / f"ind.{name.lower()}.test.index", dtype=np.int64, ndmin=1)
    all_x, tx, all_y, ty = (_dense(part(file)) for file in ("allx", "tx", "ally", "ty"))
    labelled, graph = len(_dense(part("y"))), part("graph")
    order = np.sort(index)
    if name.lower() == "citeseer":  # some test nodes have no edge and are left out of the files
        tx, ty = (_spread(table, order - order[0]) for table in (tx, ty))
    x, hot = np.concatenate([all_x, tx]), np.concatenate([all_y, ty])
    y = hot.argmax(axis=1)
    x[index], y[index] = x[order], y[order]
    ends = [(key, end) for key, row in graph.items() for end in row if key != end]
    arcs = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    masks = {role: np.zeros(len(y), dtype=bool) for role in ("train", "val", "test")}
    masks["train"][:labelled] = True
    masks["val"][labelled : labelled + 500] = True  # the published split's validation nodes
    masks["test"][index] = True
    return Raw(x, y, arcs, masks)


def _dense(found: Any) -> Numbers:
    table = found.toarray() if isinstance(found, sp.csr_array) else found
    if not isinstance(table, np.ndarray) or table.ndim != 2:
        raise ValueError("a raw file holds no table")
    return table.astype(np.float32)


def _spread(table: Numbers, places: Numbers) -> Numbers:
    """Return the rows at their places, zeros between them."""
    wide = np.zeros((int(places.max()) + 1, table.shape[1]), dtype=table.dtype)
    wide[places] = table
    return wide
