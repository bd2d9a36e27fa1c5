"""Published node-classification sets as plain `.npz` files in a folder that the user names.

A file `<root>/<name>/<name>.npz` holds `edges` int32 (2, M), each undirected pair once with u < v;
`y` int16 (N,), -1 for no label; and features, dense `x` float32 (N, F) or CSR arrays `x_indptr`,
`x_indices`, `x_data`, `x_shape`. Any split in the file is left unread: splits are drawn per run.

Sparse features (words, counts, TF-IDF) are divided by their row sums, as Kipf and Welling (ICLR
2017, section 5.1) do; rows without features stay empty. Dense features are taken as they are.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from secure_fgl.data.graph import Features, Graph
from secure_fgl.data.sources._source import Shape

__all__ = ["NAMES", "describe", "load"]

NAMES: Mapping[str, Shape] = {
    "actor": Shape(932, 5, 7600, False),
    "amazon_computers": Shape(767, 10, 13752, False),
    "chameleon_filtered": Shape(2325, 5, 890, False),
    "citeseer": Shape(3703, 6, 3327, False),
    "coauthor_cs": Shape(6805, 15, 18333, False),
    "coauthor_physics": Shape(8415, 5, 34493, False),
    "cora": Shape(1433, 7, 2708, False),
    "cora_ml": Shape(2879, 7, 2995, False),
    "dblp": Shape(1639, 4, 17716, False),
    # A generated grid (Platonov et al., ICLR 2023): public, and synthetic all the same.
    "minesweeper": Shape(7, 2, 10000, True),
    "squirrel_filtered": Shape(2089, 5, 2223, False),
    "tolokers": Shape(10, 2, 11758, False),
}
"""Public sizes of each set, from the literature; loading checks that the file agrees."""


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Public sizes from the table.

    Raises:
        ValueError: an option was given; these sets have none.
    """
    if options:
        raise ValueError(
            f"the data set {name!r} takes no options, and was given: {', '.join(sorted(options))}"
        )
    return NAMES[name]


def load(name: str, root: Path | None, options: Mapping[str, Any]) -> Graph:
    """Read one set.

    Raises:
        FileNotFoundError: no folder was named, or the file is not in it.
        ValueError: an option was given, or the file is not what the table says.
    """
    shape = describe(name, options)
    path = _locate(name, root)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            edges = arrays["edges"].astype(np.int64)
            y = arrays["y"].astype(np.int64)
            x = _features(arrays)
    except (BadZipFile, EOFError, KeyError, TypeError, ValueError, zlib.error) as broken:
        raise ValueError(
            f"{path} cannot be read as a node-classification set; most likely it is damaged or "
            "was written in another layout: fetch or convert it again"
        ) from broken
    _check(path, shape, edges, x, y)
    return Graph(name, edges, x, y, shape.classes, shape.synthetic)


def _locate(name: str, root: Path | None) -> Path:
    remedy = (
        "point data.root in the configuration, or the environment variable SECURE_FGL_DATA, at "
        f"the folder that holds {name}/{name}.npz"
    )
    if root is None:
        raise FileNotFoundError(f"the data set {name!r} needs a data folder; {remedy}")
    path = root / name / f"{name}.npz"
    if not path.is_file():
        missing = "that folder does not exist" if not root.is_dir() else "no such file is there"
        raise FileNotFoundError(f"looked for {path}: {missing}; {remedy}")
    return path


def _features(arrays: Mapping[str, npt.NDArray[Any]]) -> Features:
    if "x" in arrays:
        return np.ascontiguousarray(arrays["x"], dtype=np.float32)
    rows, columns = (int(size) for size in arrays["x_shape"])
    x = sp.csr_array(
        (arrays["x_data"].astype(np.float32), arrays["x_indices"], arrays["x_indptr"]),
        shape=(rows, columns),
    )
    x.check_format(full_check=True)
    if not np.isfinite(x.data).all():
        raise ValueError("features hold NaN or infinity")
    sums = np.asarray(x.sum(axis=1)).ravel()
    scale = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums != 0)
    x.data *= np.repeat(scale, np.diff(x.indptr)).astype(np.float32)
    return x


def _check(
    path: Path, shape: Shape, edges: npt.NDArray[np.int64], x: Features, y: npt.NDArray[np.int64]
) -> None:
    expected = (shape.nodes, shape.features)
    agrees = (
        x.shape == expected
        and y.shape == (shape.nodes,)
        and y.min() >= -1
        and y.max() == shape.classes - 1
        and edges.ndim == 2
        and edges.shape[0] == 2
        and edges.min() >= 0
        and edges.max() < shape.nodes
        and bool((edges[0] < edges[1]).all())
        and bool(np.isfinite(x.sum()))
    )
    if not agrees:
        raise ValueError(
            f"{path} is not the published set: expected {shape.nodes} nodes, {shape.features} "
            f"finite features, {shape.classes} classes and each edge once with u < v; check the "
            "file's origin and its SHA-256"
        )
