"""PyG's files and objects as records of ours, opened without unpickling anything that they hold."""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import Features, Graph, GraphSet, Masks
from secure_fgl.data.sources._shared import files
from secure_fgl.data.sources._shared.files import (
    BROKEN,
    RawRefused,
    Shape,
    degree_one_hot,
    one_hot,
    proper_masks,
    read,
    undirected,
)
from secure_fgl.data.sources._shared.planetoid import read_planetoid

if TYPE_CHECKING:
    import scipy.sparse as sp

# --- PyG's sets, opened without unpickling anything that they hold ---
#
# PyG believes what files declare and makes room for it. `check_raw` looks at raw files first:
# nothing pickled, no size that is not true. Only headers and whole numbers are read.
#
# Three things of PyG run what a file says: `process` of Planetoid and of Twitch; `_process`, for
# every class, where `pre_transform.pt` or `pre_filter.pt` lies beside a processed set; and the
# fall-back of `fs.torch_load`, if a processed set holds more than weights. `opened` replaces the
# first two; the third is stopped by `pyg.py` and by `nothing_unpickled`: while that holds, no code
# of this thread finds a class or function that a pickle names, whichever library reads it.

LIMIT = 1 << 30  # bytes of a file, and of all that an archive unpacks to; Flickr's have 360 MB
CELLS = 1 << 28  # of one-hot labels, four bytes each; DD, the largest of NAMES' kind, takes 3e7
_PLAIN = "biufSU"
Arrays = dict[str, Any]


_GUARDED: ContextVar[bool] = ContextVar("guarded", default=False)


@contextmanager
def nothing_unpickled() -> Iterator[None]:
    """Let nothing be found that a pickle names, by whichever reader; for this thread only.

    Raises:
        RawRefused: from within the reader that met such a name.
    """
    _install()
    token = _GUARDED.set(True)
    try:
        yield
    finally:
        _GUARDED.reset(token)


_FETCHES: ContextVar[bool] = ContextVar("fetches", default=True)


@contextmanager
def nothing_fetched() -> Iterator[None]:
    """Let no data set be downloaded: an audit asks nobody for what somebody else's run names."""
    token = _FETCHES.set(False)
    try:
        yield
    finally:
        _FETCHES.reset(token)


def fetches() -> bool:
    """Tell whether a data set that is not there may be downloaded."""
    return _FETCHES.get()


@cache
def _install() -> None:
    sys.addaudithook(_hook)  # for good: a hook cannot be taken away


def _hook(event: str, _: tuple[Any, ...]) -> None:
    # Every unpickler of the standard library raises it before it looks a name up (Python's table
    # of audit events); torch's with weights only does not, and finds listed classes alone.
    if event == "pickle.find_class" and _GUARDED.get():
        raise RawRefused(None, "it is a pickle that names code, which loading would run")


def opened(kind: str, folder: Path, settings: dict[str, Any], shape: Shape) -> Any:
    """Return a data set of PyG's class `kind`, fetched into `folder` if it is not there.

    Raises:
        RawRefused: a file of it would run code, or declares sizes that are not its own.
        Exception: whatever else PyG raises.
    """
    from torch_geometric import datasets
    from torch_geometric.data import Data
    from torch_geometric.io import fs

    own = _READERS.get(kind)

    def _process(self: Any) -> None:
        if all(Path(path).exists() for path in self.processed_paths):
            return
        fs.makedirs(self.processed_dir, exist_ok=True)
        self.process()

    def _download(self: Any) -> None:
        if fetches():
            found._download(self)
        elif not all(Path(path).exists() for path in self.raw_paths):
            raise FileNotFoundError("the set is not there, and an audit fetches none")

    def process(self: Any) -> None:
        raw = Path(self.raw_dir)
        check_raw(kind, raw, getattr(self, "name", ""), shape)
        if own is None:
            found.process(self)
            return
        arrays = own(raw, self.name, shape)
        self.save([Data(**_tensors(arrays))], self.processed_paths[0])

    found = getattr(datasets, kind)
    changed = {"_download": _download, "_process": _process, "process": process}
    with nothing_unpickled():
        return type(kind, (found,), changed)(str(folder), **settings)


def _tensors(arrays: Arrays) -> Arrays:
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _twitch(folder: Path, name: str, shape: Shape) -> Arrays:
    """MUSAE's countries (Rozemberczki et al., 2021), as PyG lays them out."""

    def reader(arrays: files.Arrays) -> Arrays:
        edges = files.integers(arrays, "edges")
        return {
            "x": files.dense_features(arrays, "features"),
            "y": files.integers(arrays, "target"),
            "edge_index": edges.T.copy(),
        }

    return files.read(folder / f"{name}.npz", "Twitch", reader)


_READERS: dict[str, Callable[[Path, str, Shape], Arrays]] = {
    "Planetoid": read_planetoid,
    "Twitch": _twitch,
}


def check_raw(kind: str, folder: Path, name: str, shape: Shape) -> None:
    """See that PyG's class `kind` may open its raw files.

    Args:
        kind: a key of `pyg.CLASSES`.
        folder: of the raw files.
        name: of the set; empty where the class holds a single one.
        shape: public sizes, which no file may exceed.

    Raises:
        OSError: a file cannot be opened.
        RawRefused: one needs a pickle, is too large, or declares sizes that are not true.
    """
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            continue
        if path.stat().st_size > LIMIT:
            raise RawRefused(path, f"it is larger than {LIMIT} bytes")
        try:
            if path.suffix == ".npz":
                _archive(path)
            elif path.suffix == ".npy":
                with path.open("rb") as file:
                    _array(path, file, path.stat().st_size)
        except BROKEN as broken:
            if isinstance(broken, RawRefused):
                raise
            raise RawRefused(path, "it is no file of plain arrays") from broken
    if kind in _MORE:
        try:
            _MORE[kind](folder, name, shape)
        except (IndexError, KeyError, OverflowError, UnicodeError, ValueError) as wrong:
            if isinstance(wrong, RawRefused):
                raise
            raise RawRefused(folder, "its files are damaged or of another form") from wrong


def _archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > LIMIT:
            raise RawRefused(path, f"it unpacks to more than {LIMIT} bytes")
        if len({member.filename for member in members}) != len(members):
            raise RawRefused(path, "it holds a name twice")
        for member in members:
            with archive.open(member) as file:
                _array(path, file, member.file_size)


def _array(path: Path, file: IO[bytes], size: int) -> None:
    """Read an array's header: plain numbers or texts, as many as there are bytes."""
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise RawRefused(path, "an array is written in another format")
    shape, _, dtype = readers[version](file)
    if dtype.kind not in _PLAIN:
        raise RawRefused(path, "an array holds Python objects: a pickle, which loading would run")
    if any(n < 0 for n in shape) or math.prod(shape) * dtype.itemsize != size - file.tell():
        raise RawRefused(path, "an array declares another size than it has")


def _attributed(folder: Path, name: str, shape: Shape) -> None:
    """Sparse attributes, which PyG makes dense."""
    for path in folder.glob("*.npz"):
        rows, columns = read(path, "PyG", lambda arrays: arrays["attr_shape"]).tolist()
        if columns != shape.features or not 0 < rows <= shape.records:
            raise RawRefused(path, f"it declares {columns} features of {rows} nodes")


def _actor(folder: Path, name: str, shape: Shape) -> None:
    """Lists of words, which PyG makes a table as large as the largest number."""
    path = folder / "out1_node_feature_label.txt"
    for line in path.read_text("utf-8").split("\n")[1:-1]:
        node, words, _ = line.split("\t")
        most = max(int(word) for word in words.split(","))
        if int(node) >= shape.records or most >= shape.features:
            raise RawRefused(path, "it numbers more nodes or words than the set has")


def _tu(folder: Path, name: str, shape: Shape) -> None:
    """Numbers of graphs, nodes and labels, for which PyG makes tables and one-hot columns."""
    graphs = _numbers(folder / f"{name}_graph_indicator.txt")
    arcs = _numbers(folder / f"{name}_A.txt")
    if graphs.min() < 1 or graphs.max() > shape.records:
        raise RawRefused(folder, f"it numbers more than {shape.records} graphs")
    if arcs.size and (arcs.min() < 1 or arcs.max() > len(graphs)):
        raise RawRefused(folder, "it numbers more nodes than it has")
    for part in ("node_labels", "edge_labels"):
        path = folder / f"{name}_{part}.txt"
        labels = _numbers(path) if path.is_file() else np.zeros((0, 1), np.int64)
        if labels.size:
            spans = [int(c.max()) - int(c.min()) + 1 for c in labels.T]
            if sum(spans) * len(labels) > CELLS:
                raise RawRefused(path, "its labels would take more room than a set of graphs has")


def _numbers(path: Path) -> npt.NDArray[np.int64]:
    return np.loadtxt(path, np.int64, delimiter=",", ndmin=2)


_MORE: Mapping[str, Callable[[Path, str, Shape], Any]] = {
    "Actor": _actor,
    "Amazon": _attributed,
    "CitationFull": _attributed,
    "Coauthor": _attributed,
    "TUDataset": _tu,
}


# --- PyG's `Data` objects as records of ours. No torch here: tensors are asked for their arrays
# ---

ATOM_WIDTHS = (119, 9, 11, 12, 9, 5, 8, 2, 2)
"""Values of each of the nine atom properties that PyG numbers (`torch_geometric.utils.smiles`)."""

Ints = npt.NDArray[np.int64]


def graph(
    name: str, data: Any, shape: Shape, *, words: bool, public: bool = False, fold: int = 0
) -> Graph:
    """One graph. Arcs become undirected pairs, self-loops are dropped.

    Args:
        name: catalogue name.
        data: with `x` (N, F), `y` (N,), `edge_index` (2, E), and masks where `public` is asked for.
        shape: what the data must agree with; `records` is a bound.
        words: whether features are counts of words, which are kept sparse.
        public: whether the set's own split is wanted.
        fold: which one, where there are several.

    Raises:
        ValueError: the data have other sizes than `shape` says, or no such split.
    """
    import scipy.sparse as sp

    y = _labels(data, shape)
    nodes = len(y)
    table = np.asarray(_array_pyg_objects(data.x), np.float32)
    arcs = np.asarray(_array_pyg_objects(data.edge_index), np.int64)
    if table.shape != (nodes, shape.features) or not 0 < nodes <= shape.records:
        raise ValueError("sizes")
    if not _fits(arcs, table):
        raise ValueError("edges or features")
    x: Features = sp.csr_array(table) if words else table
    masks = _masks(data, y, fold) if public else None
    return Graph(name, undirected(arcs, nodes), x, y, shape.classes, shape.synthetic, public=masks)


def _array_pyg_objects(tensor: Any) -> npt.NDArray[Any]:
    """Return a tensor's array; a few numbers that are said to be very many are refused."""
    array: npt.NDArray[Any] = tensor.numpy()
    if array.nbytes > tensor.untyped_storage().nbytes():
        raise ValueError("sizes")
    return array


def _fits(arcs: Ints, x: npt.NDArray[np.float32]) -> bool:
    inside = not arcs.size or (arcs.min() >= 0 and arcs.max() < len(x))
    return bool(arcs.ndim == 2 and arcs.shape[0] == 2 and inside and np.isfinite(x).all())


def _labels(data: Any, shape: Shape) -> Ints:
    y = np.asarray(_array_pyg_objects(data.y)).reshape(-1)
    if y.dtype.kind not in "iu" or (y.size and not -1 <= y.min() <= y.max() < shape.classes):
        raise ValueError("classes")
    return y.astype(np.int64)


def _masks(data: Any, y: Ints, fold: int) -> Masks:
    found = [getattr(data, f"{role}_mask", None) for role in Masks._fields]
    if any(mask is None for mask in found):
        raise ValueError("no published split")
    columns = [np.asarray(_array_pyg_objects(mask)) for mask in found if mask is not None]
    folds = {mask.shape[1] if mask.ndim == 2 else 1 for mask in columns}
    if fold >= max(folds):
        raise ValueError("no such fold")
    # WikiCS has twenty training parts and one test part, which all folds share.
    masks = Masks(*(mask[:, fold] if mask.ndim == 2 else mask for mask in columns))
    if not proper_masks(masks, y):
        raise ValueError("no published split")
    return masks


def graph_set(name: str, items: Sequence[Any], shape: Shape) -> GraphSet:
    """Many graphs. Labels are those of `shape`: one class a graph, or answers (1, T) with NaN.

    Features are those of the data, in CSR. Whole numbers in nine columns are PyG's atoms and become
    one-hot (Hu et al., NeurIPS 2020); where there are none, the node's degree takes their place,
    capped at the width in `shape`.

    Raises:
        ValueError: the data have other sizes than `shape` says.
    """
    if not 0 < len(items) <= shape.records:
        raise ValueError("sizes")
    sizes = np.array([item.num_nodes for item in items], np.int64)
    starts = [0, *accumulate(sizes.tolist())][:-1]
    arcs = np.concatenate(
        [
            np.asarray(_array_pyg_objects(item.edge_index), np.int64) + start
            for item, start in zip(items, starts, strict=True)
        ],
        axis=1,
    )
    nodes = int(sizes.sum())
    if sizes.min() < 1 or (arcs.size and (arcs.min() < 0 or arcs.max() >= nodes)):
        raise ValueError("sizes")
    edges = undirected(arcs, nodes)
    member = np.repeat(np.arange(len(sizes)), sizes)
    x = _node_features(items, edges, nodes, shape.features)
    if x.shape != (nodes, shape.features) or not np.array_equal(*member[edges]):
        raise ValueError("sizes")
    return GraphSet(
        name,
        sizes,
        edges,
        x,
        _answers(items, shape) if shape.multilabel else _classes(items, shape),
        shape.classes,
        multilabel=shape.multilabel,
        synthetic=shape.synthetic,
    )


def _node_features(items: Sequence[Any], edges: Ints, nodes: int, width: int) -> sp.csr_array:
    import scipy.sparse as sp

    if any(getattr(item, "x", None) is None for item in items):
        return degree_one_hot(edges, nodes, width)
    tables = [np.asarray(_array_pyg_objects(item.x)) for item in items]
    if tables[0].dtype.kind not in "iu":
        x = sp.csr_array(np.concatenate(tables).astype(np.float32))
        if not np.isfinite(x.data).all():
            raise ValueError("features hold NaN or infinity")
        return x
    atoms = np.concatenate(tables).astype(np.int64)
    widths = np.array(ATOM_WIDTHS)
    if atoms.shape[1:] != widths.shape or atoms.min() < 0 or (atoms >= widths).any():
        raise ValueError("features")
    return one_hot(atoms + np.cumsum(widths) - widths, int(widths.sum()))


def _classes(items: Sequence[Any], shape: Shape) -> Ints:
    labels = [_labels(item, shape) for item in items]
    if any(label.shape != (1,) or label[0] < 0 for label in labels):
        raise ValueError("classes")
    return np.concatenate(labels)


def _answers(items: Sequence[Any], shape: Shape) -> npt.NDArray[np.float32]:
    y = np.stack([np.asarray(_array_pyg_objects(item.y), np.float32).reshape(-1) for item in items])
    if y.shape[1] != shape.classes or not (np.isnan(y) | (y == 0) | (y == 1)).all():
        raise ValueError("classes")
    return y
