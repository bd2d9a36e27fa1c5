"""Graph-classification sets of the TU collection (Morris et al., 2020) as plain `.npz` files.

A file `<root>/<name>/<name>.npz` holds `n_nodes` int32 (G,), `graph_id` int32 (N,), sorted; `edges`
int32 (2, M) over the nodes of all graphs, each undirected pair once with u < v; `y` int16 (G,); and
where the set has them `node_label` int16 (N,) and `node_attr` float32 (N, A).

Features are the node labels, one column each. `attributes: true` appends the published attributes
as they are: scaling them over all clients would be a release of its own. Sets without node labels
(the film collaborations) get each node's degree, counted in its own graph and capped at the width
in the table, which is that of Xie et al. (NeurIPS 2021, GCFL). Features are CSR. Edge labels are
left unread.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import GraphSet
from secure_fgl.data.sources._shared.files import (
    Arrays,
    Shape,
    another_file,
    check_known,
    degree_one_hot,
    dense_features,
    flag,
    integers,
    locate,
    one_hot,
    proper_edges,
    read,
)

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["ATTRIBUTES", "NAMES", "describe", "load"]

NAMES: Mapping[str, Shape] = {
    "aids": Shape("graph", 38, 2, 2000, False),
    "bzr": Shape("graph", 10, 2, 405, False),
    "cox2": Shape("graph", 8, 2, 467, False),
    "dd": Shape("graph", 82, 2, 1178, False),
    "enzymes": Shape("graph", 3, 6, 600, False),
    "imdb_binary": Shape("graph", 136, 2, 1000, False),
    "imdb_multi": Shape("graph", 89, 3, 1500, False),
    "mutag": Shape("graph", 7, 2, 188, False),
    "nci1": Shape("graph", 37, 2, 4110, False),
    "nci109": Shape("graph", 38, 2, 4127, False),
    "proteins": Shape("graph", 3, 2, 1113, False),
    "ptc_mr": Shape("graph", 18, 2, 344, False),
}
"""Public sizes of each set, from the literature; loading checks that the file agrees."""

ATTRIBUTES: Mapping[str, int] = {"aids": 4, "bzr": 3, "cox2": 3, "enzymes": 18, "proteins": 1}
"""Attributes of a node, where the set has any."""

UNLABELLED = ("imdb_binary", "imdb_multi")
"""Sets without node labels: their features are degrees."""

Ints = npt.NDArray[np.int64]


class _Parts(NamedTuple):
    sizes: Ints
    graph: Ints
    edges: Ints
    y: Ints
    label: Ints | None
    attributes: npt.NDArray[np.float32] | None


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Public sizes from the table.

    Raises:
        ValueError: an option that the set does not know, or a value that is not true or false.
    """
    check_known(name, options, ("attributes",) if name in ATTRIBUTES else ())
    shape = NAMES[name]
    more = ATTRIBUTES[name] if flag(name, options, "attributes") else 0
    return shape._replace(features=shape.features + more)


def load(name: str, root: Path | None, options: Mapping[str, Any]) -> GraphSet:
    """Read one set.

    Raises:
        FileNotFoundError: no folder was named, or the file is not in it.
        ValueError: an option is wrong, or the file is not what the table says.
    """
    shape = describe(name, options)
    path = locate(name, root, f"{name}/{name}.npz")
    with_attributes = flag(name, options, "attributes")
    parts = read(path, "graph-classification", lambda arrays: _parts(arrays, name, with_attributes))
    _check(path, name, parts)
    return GraphSet(
        name,
        parts.sizes,
        parts.edges,
        _features(name, parts),
        parts.y,
        shape.classes,
        multilabel=False,
        synthetic=False,
    )


def _parts(arrays: Arrays, name: str, attributes: bool) -> _Parts:
    return _Parts(
        sizes=integers(arrays, "n_nodes"),
        graph=integers(arrays, "graph_id"),
        edges=integers(arrays, "edges"),
        y=integers(arrays, "y"),
        label=None if name in UNLABELLED else integers(arrays, "node_label"),
        attributes=dense_features(arrays, "node_attr") if attributes else None,
    )


def _features(name: str, parts: _Parts) -> sp.csr_array:
    import scipy.sparse as sp

    width = NAMES[name].features
    if parts.label is None:
        return degree_one_hot(parts.edges, len(parts.graph), width)
    labels = one_hot(parts.label, width)
    if parts.attributes is None:
        return labels
    return sp.csr_array(sp.hstack([labels, sp.csr_array(parts.attributes)]))


def _check(path: Path, name: str, parts: _Parts) -> None:
    shape, (sizes, graph, edges, y, label, attributes) = NAMES[name], parts
    nodes = len(graph)
    agrees = (
        sizes.shape == y.shape == (shape.records,)
        and sizes.min() >= 1
        and sizes.sum() == nodes
        and np.array_equal(graph, np.repeat(np.arange(shape.records), sizes))
        and y.min() == 0
        and y.max() == shape.classes - 1
        and proper_edges(edges, nodes)
        and np.array_equal(graph[edges[0]], graph[edges[1]])
        and (
            label is None
            or (label.shape == (nodes,) and label.min() == 0 and label.max() == shape.features - 1)
        )
        and (attributes is None or attributes.shape == (nodes, ATTRIBUTES[name]))
    )
    if not agrees:
        raise another_file(
            path,
            f"{shape.records} graphs of {shape.classes} classes, labels or attributes for every "
            "node, and each edge once with u < v inside one graph",
        )
