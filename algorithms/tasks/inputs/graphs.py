"""Several graphs as one block: what a graph task learns from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from algorithms.nn._shared.graphs import Blocks, GraphBatch
from algorithms.nn._shared.layouts import Weighing
from algorithms.nn._shared.sparse import propagation
from algorithms.tasks import Split
from algorithms.tasks._flat import Numbers


class GraphsLike(Split, Protocol):
    """Arrays from which `GraphsData` is built; `secure_fgl.data.ClientGraphs` is one."""

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """int64 (G,), nodes of each graph, numbered graph after graph."""

    @property
    def edges(self) -> npt.NDArray[np.int64]:
        """int64 (2, M) over the nodes of all graphs, each undirected pair once with u < v."""

    @property
    def x(self) -> Any:
        """Features (N, F) of all nodes: scipy CSR or ndarray."""

    @property
    def y(self) -> npt.NDArray[Any]:
        """int64 (G,), or float32 (G, T) of 0, 1 and NaN for missing."""


@dataclass(frozen=True, repr=False, eq=False)
class GraphsData:
    """One client's graphs, ready for training. Everything here is private.

    Attributes:
        sizes: int64 (G,), nodes of each graph, 1 or more.
        edges: int64 (2, M) over the nodes of all graphs, each undirected pair once.
        x: features (N, F) of all nodes, dense tensor or scipy CSR.
        y: int64 (G,), -1 for no label; or float32 (G, T) of 0, 1 and NaN for missing.
        train, val, test: bool (G,), disjoint, never on a graph with y = -1.
        planted: how many of the training graphs the client made up as canaries; `count` leaves
            them out.
    """

    sizes: Numbers
    edges: Tensor
    x: Tensor | sp.csr_array
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    planted: int = 0
    _blocks: dict[str, Blocks] = field(default_factory=dict)
    _latest: dict[str, tuple[bytes, GraphBatch]] = field(default_factory=dict)

    @classmethod
    def from_graphs(cls, graphs: GraphsLike) -> GraphsData:
        """From numpy and scipy arrays, which are copied.

        Raises:
            ValueError: shapes disagree, a graph has no node, an edge leaves its graph, features or
                labels are out of range, masks overlap, or a mask holds an unlabelled graph.
        """
        _check(graphs)
        several = np.asarray(graphs.y).ndim > 1
        return cls(
            sizes=np.array(graphs.sizes, dtype=np.int64),
            edges=torch.from_numpy(np.array(graphs.edges, dtype=np.int64)),
            x=_features(graphs.x),
            y=torch.from_numpy(np.array(graphs.y, dtype=np.float32 if several else np.int64)),
            train=torch.from_numpy(np.array(graphs.train, dtype=bool)),
            val=torch.from_numpy(np.array(graphs.val, dtype=bool)),
            test=torch.from_numpy(np.array(graphs.test, dtype=bool)),
        )

    @property
    def count(self) -> int:
        """Number of training records."""
        return int(self.train.sum()) - self.planted

    @property
    def graphs(self) -> int:
        """Number of graphs, G."""
        return len(self.sizes)

    @property
    def features(self) -> int:
        """Number of input features, F."""
        return int(self.x.shape[1])

    def cut(self, graphs: Numbers, kind: Weighing) -> GraphBatch:
        """The graphs of these numbers, with propagation of this kind; the latest are kept.

        Where a site has fewer graphs than a batch, every step takes the same ones; and a mixture
        of two models takes each batch twice.
        """
        asked = graphs.tobytes()
        kept = self._latest.get(kind)
        if kept is None or kept[0] != asked:
            if kind not in self._blocks:
                whole = propagation(self.edges, self.x.shape[0], kind)
                self._blocks[kind] = Blocks(self.sizes, self.x, whole, kind)
            kept = (asked, self._blocks[kind].cut(graphs))
            self._latest[kind] = kept
        return kept[1]

    def __repr__(self) -> str:
        return "<GraphsData>"


def _features(x: Any) -> Tensor | sp.csr_array:
    if isinstance(x, np.ndarray):
        return torch.tensor(x, dtype=torch.float32)
    tidy: sp.csr_array = sp.csr_array(x, dtype=np.float32, copy=True)
    tidy.sum_duplicates()
    return tidy


def _check(graphs: GraphsLike) -> None:
    sizes, edges = np.asarray(graphs.sizes), np.asarray(graphs.edges)
    if sizes.ndim != 1 or (sizes < 1).any():
        raise ValueError("sizes must say of each graph how many nodes it has, 1 or more")
    nodes = int(sizes.sum())
    if graphs.x.shape[0] != nodes:
        raise ValueError(
            "features and sizes disagree on the number of nodes; features need one row for each "
            "node of each graph"
        )
    values = graphs.x if isinstance(graphs.x, np.ndarray) else graphs.x.data
    if not np.isfinite(values).all():
        raise ValueError("the features hold NaN or infinity; clean or impute them before training")
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError("edges must have the shape (2, M): one column for each undirected pair")
    owner = np.repeat(np.arange(len(sizes)), sizes)
    if edges.size and (
        edges.min() < 0 or edges.max() >= nodes or (owner[edges[0]] != owner[edges[1]]).any()
    ):
        raise ValueError(
            "an edge points outside its graph; nodes are numbered graph after graph, over all the "
            "graphs of the client"
        )
    _check_labels(graphs, len(sizes))


def _check_labels(graphs: GraphsLike, count: int) -> None:
    y = np.asarray(graphs.y)
    masks = [np.asarray(mask, dtype=bool) for mask in (graphs.train, graphs.val, graphs.test)]
    if y.ndim not in (1, 2) or len(y) != count or any(m.shape != (count,) for m in masks):
        raise ValueError(
            "sizes, labels and masks disagree on the number of graphs; each needs one entry a "
            "graph: check how the graphs were shared out"
        )
    if np.sum(masks, axis=0).max(initial=0) > 1:
        raise ValueError("train, val and test overlap; a graph may have one role only")
    if y.ndim == 1 and (np.any(masks, axis=0) & (y < 0)).any():
        raise ValueError("an unlabelled graph is in a split; leave such graphs out of all masks")
    if y.ndim == 2 and not ((y == 0) | (y == 1) | np.isnan(y)).all():
        raise ValueError("a yes-or-no label is none of 0, 1 and NaN (missing); recode the labels")
