"""PyG's `Data` objects as records of ours. No torch here: tensors are asked for their arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import Features, Graph, GraphSet, Masks
from secure_fgl.data.sources._shared.graphs import degree_one_hot, one_hot, proper_masks, undirected
from secure_fgl.data.sources._shared.source import Shape

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["ATOM_WIDTHS", "graph", "graph_set"]

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
    table = np.asarray(_array(data.x), np.float32)
    arcs = np.asarray(_array(data.edge_index), np.int64)
    if table.shape != (nodes, shape.features) or not 0 < nodes <= shape.records:
        raise ValueError("sizes")
    if not _fits(arcs, table):
        raise ValueError("edges or features")
    x: Features = sp.csr_array(table) if words else table
    masks = _masks(data, y, fold) if public else None
    return Graph(name, undirected(arcs, nodes), x, y, shape.classes, shape.synthetic, public=masks)


def _array(tensor: Any) -> npt.NDArray[Any]:
    """Return a tensor's array; a few numbers that are said to be very many are refused."""
    array: npt.NDArray[Any] = tensor.numpy()
    if array.nbytes > tensor.untyped_storage().nbytes():
        raise ValueError("sizes")
    return array


def _fits(arcs: Ints, x: npt.NDArray[np.float32]) -> bool:
    inside = not arcs.size or (arcs.min() >= 0 and arcs.max() < len(x))
    return bool(arcs.ndim == 2 and arcs.shape[0] == 2 and inside and np.isfinite(x).all())


def _labels(data: Any, shape: Shape) -> Ints:
    y = np.asarray(_array(data.y)).reshape(-1)
    if y.dtype.kind not in "iu" or (y.size and not -1 <= y.min() <= y.max() < shape.classes):
        raise ValueError("classes")
    return y.astype(np.int64)


def _masks(data: Any, y: Ints, fold: int) -> Masks:
    found = [getattr(data, f"{role}_mask", None) for role in Masks._fields]
    if any(mask is None for mask in found):
        raise ValueError("no published split")
    columns = [np.asarray(_array(mask)) for mask in found if mask is not None]
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
            np.asarray(_array(item.edge_index), np.int64) + start
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
    tables = [np.asarray(_array(item.x)) for item in items]
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
    y = np.stack([np.asarray(_array(item.y), np.float32).reshape(-1) for item in items])
    if y.shape[1] != shape.classes or not (np.isnan(y) | (y == 0) | (y == 1)).all():
        raise ValueError("classes")
    return y
