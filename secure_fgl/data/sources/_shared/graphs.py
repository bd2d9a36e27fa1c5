"""Edges and features that several sources make."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import Graph, Masks

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = [
    "degree_buckets",
    "degree_one_hot",
    "largest_component",
    "one_hot",
    "proper_edges",
    "proper_masks",
    "undirected",
]

Ints = npt.NDArray[np.int64]


def proper_edges(edges: Ints, nodes: int) -> bool:
    """Whether edges (2, M) name existing nodes, each undirected pair once with u < v."""
    if edges.ndim != 2 or edges.shape[0] != 2:
        return False
    if not edges.size:
        return True
    if edges.min() < 0 or edges.max() >= nodes or not bool((edges[0] < edges[1]).all()):
        return False
    return bool(np.unique(edges[0] * nodes + edges[1]).size == edges.shape[1])


def undirected(edges: Ints, nodes: int) -> Ints:
    """Each joined pair once with u < v, ascending, from arcs (2, M); self-loops are dropped."""
    low, high = edges.min(axis=0), edges.max(axis=0)
    pairs = np.unique((low * nodes + high)[low != high])
    return np.stack([pairs // nodes, pairs % nodes]).astype(np.int64)


def proper_masks(masks: Masks, y: npt.NDArray[Any]) -> bool:
    """Whether masks are bool (N,), disjoint, train somebody and hold labelled nodes only."""
    if any(mask.dtype != np.bool_ or mask.shape != y.shape for mask in masks):
        return False
    roles = np.sum(masks, axis=0)
    return bool(masks.train.any() and roles.max() <= 1 and (y[roles > 0] >= 0).all())


def largest_component(graph: Graph) -> Graph:
    """The subgraph of the largest connected component; of equally large ones, the first."""
    import scipy.sparse as sp
    from scipy.sparse.csgraph import connected_components

    joined = sp.coo_array(
        (np.ones(graph.edges.shape[1], np.int8), (graph.edges[0], graph.edges[1])),
        shape=(graph.nodes, graph.nodes),
    )
    _, component = connected_components(joined, directed=False)
    keep = component == np.bincount(component).argmax()
    number = np.cumsum(keep) - 1  # ascending, so u < v stays
    public = graph.public
    return dataclasses.replace(
        graph,
        edges=np.ascontiguousarray(number[graph.edges[:, keep[graph.edges[0]]]]),
        x=graph.x[np.flatnonzero(keep)],
        y=graph.y[keep],
        owner=None if graph.owner is None else graph.owner[keep],
        public=None if public is None else Masks(*(mask[keep] for mask in public)),
    )


def one_hot(columns: Ints, width: int) -> sp.csr_array:
    """CSR float32 with ones where `columns` says: (N,) one a row, or (N, K) ascending K a row."""
    import scipy.sparse as sp

    rows = len(columns)
    each = 1 if columns.ndim == 1 else columns.shape[1]
    starts = np.arange(rows + 1, dtype=np.int64) * each
    ones = np.ones(rows * each, np.float32)
    return sp.csr_array((ones, columns.reshape(-1), starts), shape=(rows, width))


def degree_one_hot(edges: Ints, nodes: int, width: int) -> sp.csr_array:
    """One column a degree; degrees of `width` - 1 and more share the last."""
    degree = np.bincount(edges.reshape(-1), minlength=nodes)
    return one_hot(np.minimum(degree, width - 1), width)


def degree_buckets(edges: Ints, nodes: int, width: int) -> sp.csr_array:
    """One column for degree 0, then one for each doubling: 1, 2 to 3, 4 to 7, ...

    The last column holds all larger degrees too.
    """
    degree = np.bincount(edges.reshape(-1), minlength=nodes)
    # frexp is exact: degree = m * 2^e with m in [0.5, 1), so e is the bucket, and 0 for degree 0.
    bucket = np.frexp(degree.astype(np.float64))[1].astype(np.int64)
    return one_hot(np.minimum(bucket, width - 1), width)
