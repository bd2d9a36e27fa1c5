"""PyG's sets, opened without unpickling anything that they hold.

PyG believes what files declare and makes room for it. `check_raw` looks at raw files first: nothing
pickled, no size that is not true. Only headers and whole numbers are read.

Three things of PyG run what a file says: `process` of Planetoid and of Twitch; `_process`, for
every class, where `pre_transform.pt` or `pre_filter.pt` lies beside a processed set; and the
fall-back of `fs.torch_load`, if a processed set holds more than weights. `opened` replaces the
first two; the third is stopped by `pyg.py` and by `nothing_unpickled`: while that holds, no code of
this thread finds a class or function that a pickle names, whichever library reads it.
"""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.sources._shared import files
from secure_fgl.data.sources._shared.files import BROKEN, RawRefused, read
from secure_fgl.data.sources._shared.planetoid import read_planetoid
from secure_fgl.data.sources._shared.source import Shape

__all__ = ["check_raw", "fetches", "nothing_fetched", "nothing_unpickled", "opened"]

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
