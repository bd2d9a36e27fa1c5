"""Planetoid's raw files (Yang, Cohen and Salakhutdinov, ICML 2016), put together as PyG does.

`ind.<set>.x`, `tx`, `allx` hold features, `y`, `ty`, `ally` labels (one-hot), `graph` neighbours,
`test.index` where the test nodes belong. All but the last are pickles, as Python 2 wrote them
(protocol 2).

`read_objects` unpickles them and runs nothing of them. It looks at the instructions first: those
that the published files hold, and no others. Of the six names that these files hold, each stands
here for a class of this module, which makes an array of numbers, its type, a sparse matrix or a
table, and takes no other content; any other name ends the reading. Sizes that a file declares must
be those of the bytes that it holds.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from secure_fgl.data.sources._shared.files import RawRefused, Shape

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["LIMIT", "read_objects", "read_planetoid"]

LIMIT = 1 << 28  # bytes; the largest published file of Planetoid's three sets has 5 MB
_TYPES = {"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "b1"}
_SPARSE = {"_shape", "data", "format", "indices", "indptr"}
_FLAGS = {"maxprint", "_cs_matrix__has_sorted_indices", "_cs_matrix__has_canonical_format"}
_TUPLES = 1000  # of one file; a published one has some ten
_INSTRUCTIONS = {
    *("APPEND", "APPENDS", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINSTRING"),
    *("BUILD", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "GLOBAL", "LONG_BINGET", "LONG_BINPUT"),
    *("MARK", "NEWFALSE", "NEWOBJ", "NEWTRUE", "NONE", "PROTO", "REDUCE", "SETITEM", "SETITEMS"),
    *("SHORT_BINSTRING", "STOP", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
}
_VALIDATION = 500  # nodes after the training nodes (Yang et al., section 5.1)
_INDEX_LIMIT = 1 << 24  # bytes of test.index; the published ones have 6,000

Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.float32]


class _Wrong(Exception):
    """The file is none of the published form; its text says where it leaves it."""


class _Made:
    """What a name of a file makes here; its content comes later, once, through `__setstate__`.

    Unpickling calls `__setstate__` where a class has one, and else sets attributes as the file
    says. So every class that a file can reach has one.
    """

    __slots__ = ("value",)
    value: Any

    def __setstate__(self, state: Any) -> None:
        if hasattr(self, "value"):
            raise _Wrong("it changes an object of another kind")
        self.value = self.content(state)

    def content(self, state: Any) -> Any:
        raise _Wrong("it changes an object of another kind")


class _Kind(_Made):
    """A class that a file names and does not call: of an array, or of a table's lists."""

    __slots__ = ()


_NDARRAY, _LIST = _Kind(), _Kind()


class _Table(_Made):
    """The table of a graph: a plain dict."""

    __slots__ = ()

    def __new__(cls, *given: Any) -> dict[Any, Any]:  # type: ignore[misc]
        if len(given) != 1 or given[0] is not _LIST:
            raise _Wrong("it calls something")
        return {}


class _Dtype(_Made):
    """An array's type."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, *given: Any) -> Self:
        if given not in [(code, 0, 1) for code in _TYPES]:
            raise _Wrong("it calls something")
        made = super().__new__(cls)
        made.code = given[0]
        return made

    def content(self, state: Any) -> np.dtype[Any]:
        plain = [(3, order, None, None, None, -1, -1, 0) for order in "<>|"]
        if type(state) is not tuple or state not in plain:
            raise _Wrong("an array is not of plain numbers")
        return np.dtype(f"{state[1]}{self.code}")


class _Array(_Made):
    """An array of numbers."""

    __slots__ = ()

    def __new__(cls, *given: Any) -> Self:
        if len(given) != 3 or given[0] is not _NDARRAY or given[1:] != ((0,), "b"):
            raise _Wrong("it calls something")
        return super().__new__(cls)

    def content(self, state: Any) -> npt.NDArray[Any]:
        one, shape, kind, fortran, raw = state
        parts = (type(shape), type(kind), type(fortran), type(raw))
        if one != 1 or parts != (tuple, _Dtype, bool, str):
            raise _Wrong("an array is not written as arrays are")
        if not 1 <= len(shape) <= 2 or any(type(n) is not int or n < 0 for n in shape):
            raise _Wrong("an array has no proper shape")
        if math.prod(shape) * kind.value.itemsize != len(raw):
            raise _Wrong("an array declares another size than it has")
        flat = np.frombuffer(raw.encode("latin-1"), kind.value)
        return flat.reshape(shape, order="F" if fortran else "C")


class _Csr(_Made):
    """A sparse matrix."""

    __slots__ = ()

    def __new__(cls, *given: Any) -> Self:
        if given:
            raise _Wrong("it makes an object of another kind")
        return super().__new__(cls)

    def content(self, state: Any) -> sp.csr_array:
        import scipy.sparse as sp

        if type(state) is not dict or not _SPARSE <= set(state) <= _SPARSE | _FLAGS:
            raise _Wrong("a sparse matrix is not written as they are")
        rows, columns = state["_shape"]
        made = [state[name] for name in ("data", "indices", "indptr")]
        if any(type(part) is not _Array or part.value.ndim != 1 for part in made):
            raise _Wrong("a sparse matrix lacks a part")
        data, indices, indptr = (part.value for part in made)
        if type(rows) is not int or type(columns) is not int or len(indptr) != rows + 1:
            raise _Wrong("a sparse matrix declares another size than it has")
        matrix = sp.csr_array((data, indices, indptr), shape=(rows, columns))
        matrix.check_format(full_check=True)
        return matrix


_NAMES: Mapping[tuple[str, str], Any] = {
    ("__builtin__", "list"): _LIST,
    ("collections", "defaultdict"): _Table,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
}


class _Unpickler(pickle.Unpickler):
    """Knows six names, and looks none up."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            said = f"{module} {name}"[:60]
            raise _Wrong(f"it is a pickle that names {said!r}, which loading it could run")
        return _NAMES[module, name]

    def persistent_load(self, _: Any) -> NoReturn:
        raise _Wrong("it refers to something outside of it")


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
    try:
        _check_instructions(data)
        found = _Unpickler(io.BytesIO(data), fix_imports=False, encoding="latin-1").load()
        return _checked(found)
    except _Wrong as wrong:
        raise RawRefused(path, str(wrong)) from None
    except _DAMAGE as broken:
        raise RawRefused(path, "it is damaged or of another form") from broken


_DAMAGE = (
    *(AttributeError, EOFError, LookupError, OverflowError, RecursionError, TypeError),
    *(UnicodeError, ValueError, pickle.UnpicklingError),
)


def _check_instructions(data: bytes) -> None:
    """Raise _Wrong for an instruction that the published files do not hold.

    Python makes room for as many objects as a file numbers, and hashes tuples within tuples without
    a limit to their depth.
    """
    tuples = 0
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _INSTRUCTIONS:
            raise _Wrong(f"it holds the instruction {opcode.name}, which could run code")
        if opcode.name == "LONG_BINPUT" and (argument or 0) > len(data):
            raise _Wrong("it numbers more objects than it holds")
        tuples += opcode.name.startswith("TUPLE")
        if tuples > _TUPLES:
            raise _Wrong("it holds more tuples than arrays need")


def _checked(found: Any) -> Any:
    """Return what the file holds, where it is one of the three kinds."""
    if type(found) in (_Array, _Csr):
        return found.value
    if type(found) is not dict or any(type(key) not in (int, str) for key in found):
        raise _Wrong("it holds no array, no sparse matrix and no table by numbers or texts")
    return found


def read_planetoid(folder: Path, name: str, shape: Shape) -> dict[str, npt.NDArray[Any]]:
    """Read one set.

    Args:
        folder: of the raw files.
        name: of the set; CiteSeer has test nodes that the files leave out, which get zeros.
        shape: public sizes; the files may declare no other width and no more nodes.

    Returns:
        ``x`` (N, F), ``y`` (N,), ``edge_index`` (2, E), and the three masks (N,), for PyG's `Data`.

    Raises:
        OSError: a file cannot be opened.
        RawRefused: a file holds anything else than numbers, or the files do not fit together.
    """
    paths = {part: folder / f"ind.{name.lower()}.{part}" for part in _PARTS}
    found = {part: read_objects(path) for part, path in paths.items() if part != "test.index"}
    test = _index(paths["test.index"])
    try:
        return _together(found, test, shape, gaps=name.lower() == "citeseer")
    except (AttributeError, IndexError, TypeError, ValueError) as wrong:
        raise RawRefused(folder, f"its files {paths['x'].name} and so on do not fit together or "
                         f"are of other sizes than {shape.features} features, {shape.classes} "
                         f"classes, at most {shape.records} nodes") from wrong  # fmt: skip


_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def _index(path: Path) -> Ints:
    with path.open("rb") as file:
        data = file.read(_INDEX_LIMIT + 1)
    try:
        found = np.array([int(word) for word in data.split()], np.int64)
    except (OverflowError, ValueError):
        found = np.zeros(0, np.int64)
    if len(data) > _INDEX_LIMIT or not found.size:
        raise RawRefused(path, "it is no list of whole numbers")
    return found


def _together(
    found: Mapping[str, Any], test: Ints, shape: Shape, *, gaps: bool
) -> dict[str, npt.NDArray[Any]]:
    ordered = np.sort(test)
    if ordered[0] < 0 or ordered[-1] >= shape.records:
        raise ValueError("test nodes")
    x = [_table(found[part], shape.features, shape.records) for part in ("allx", "tx")]
    y = [_table(found[part], shape.classes, shape.records) for part in ("ally", "ty")]
    if gaps:
        places, span = ordered - ordered[0], int(ordered[-1] - ordered[0]) + 1
        x[1], y[1] = _spread(x[1], places, span), _spread(y[1], places, span)
    features, labels = np.concatenate(x), np.concatenate(y).argmax(axis=1)
    nodes, trained = len(labels), len(found["y"])
    if len(features) != nodes or nodes > shape.records or trained + _VALIDATION > nodes:
        raise ValueError("sizes")
    features[test], labels[test] = features[ordered], labels[ordered]
    places = np.arange(nodes)
    return {
        "x": features,
        "y": labels,
        "edge_index": _arcs(found["graph"], nodes),
        "train_mask": places < trained,
        "val_mask": (places >= trained) & (places < trained + _VALIDATION),
        "test_mask": np.isin(places, test),
    }


def _table(found: Any, width: int, most: int) -> Table:
    import scipy.sparse as sp

    if found.ndim != 2 or found.shape[1] != width or found.shape[0] > most:
        raise ValueError("sizes")  # before it is made dense
    return np.asarray(
        found.toarray() if isinstance(found, sp.csr_array) else found, np.float32
    ).copy()


def _spread(rows: Table, places: Ints, span: int) -> Table:
    spread = np.zeros((span, rows.shape[1]), np.float32)
    spread[places] = rows
    return spread


def _arcs(graph: Any, nodes: int) -> Ints:
    """Return arcs without loops, each once, ordered by their ends."""
    if not isinstance(graph, dict) or any(type(ends) is not list for ends in graph.values()):
        raise TypeError("graph")
    lists = list(graph.values())
    if len({id(ends) for ends in lists}) != len(lists):
        raise ValueError("one list for several nodes would multiply")
    ends = [end for found in lists for end in found]
    starts = np.repeat(np.array(list(graph), object), [len(found) for found in lists])
    if any(type(place) is not int for place in (*graph, *ends)):
        raise TypeError("graph")
    arcs = np.array([starts.tolist(), ends], np.int64)
    if arcs.size and (arcs.min() < 0 or arcs.max() >= nodes):
        raise ValueError("graph")
    codes = np.unique(arcs[1] * nodes + arcs[0])
    arcs = np.stack([codes % nodes, codes // nodes])
    return arcs[:, arcs[0] != arcs[1]]
