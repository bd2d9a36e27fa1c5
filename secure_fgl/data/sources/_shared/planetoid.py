"""Planetoid's raw files (Yang, Cohen and Salakhutdinov, ICML 2016), put together as PyG does.

`ind.<set>.x`, `tx`, `allx` hold features, `y`, `ty`, `ally` labels (one-hot), `graph` neighbours,
`test.index` where the test nodes belong. They are read by `opcodes`, which runs nothing of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.sources._shared.opcodes import read_objects
from secure_fgl.data.sources._shared.refusing import RawRefused
from secure_fgl.data.sources._shared.source import Shape

__all__ = ["read_planetoid"]

_VALIDATION = 500  # nodes after the training nodes (Yang et al., section 5.1)
_INDEX_LIMIT = 1 << 24  # bytes of test.index; the published ones have 6,000

Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.float32]


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
