"""What PyG would open of a raw set is looked at first: nothing pickled, no size that is not true.

PyG believes what files declare and makes room for it. Here only headers and whole numbers are read.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.sources._shared.files import BROKEN, read
from secure_fgl.data.sources._shared.refusing import RawRefused
from secure_fgl.data.sources._shared.source import Shape

__all__ = ["check_raw"]

LIMIT = 1 << 30  # bytes of a file, and of all that an archive unpacks to; Flickr's have 360 MB
CELLS = 1 << 28  # of one-hot labels, four bytes each; DD, the largest of NAMES' kind, takes 3e7
_PLAIN = "biufSU"


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
