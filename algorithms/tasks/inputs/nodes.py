"""One graph and its masks: what a node task learns from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from algorithms.nn._shared.layouts import Weighing
from algorithms.nn._shared.sparse import Features, Propagation, Sparse, propagation
from algorithms.tasks import Split


class GraphLike(Split, Protocol):
    """Arrays from which `NodeData` is built; `secure_fgl.data.ClientGraph` is one."""

    @property
    def edges(self) -> npt.NDArray[np.int64]:
        """int64 (2, M), each undirected pair once with u < v."""

    @property
    def x(self) -> Any:
        """Features (N, F): scipy CSR or ndarray."""

    @property
    def y(self) -> npt.NDArray[np.int64]:
        """int64 (N,), -1 for no label."""


@dataclass(frozen=True, repr=False, eq=False)
class NodeData:
    """One client's graph, ready for training. Everything here is private.

    Attributes:
        edges: int64 (2, M), each undirected pair once.
        x: features (N, F), dense tensor or `Sparse`.
        y: int64 (N,), -1 for no label.
        train, val, test: bool (N,), disjoint, never on an unlabelled node.
        tune: bool (N,), nodes of new classes that a model is tuned to before it predicts; in no
            split.
        common: bool (N,), nodes of a test graph that all clients were given: a component apart, in
            no split. A model is scored on it and sees it nowhere else.
        kept: what a task computes from all this and keeps for later.
        ids: int64 (n,), public numbers of the client's own nodes, which come first; None where
            nobody knows edges to other clients.
        beyond: int64 (2, b), edges to other clients' nodes: own node, the other end's number.
        given: nothing, or (r, D), the last r nodes' activations behind the model's first layer.
        tells: bool (n,), own nodes whose terms this client adds to sums over such edges, as others
            hold the rest, too; None: all.
        planted: how many of the training nodes the client made up as canaries; `count` leaves them
            out.
    """

    edges: Tensor
    x: Features
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    tune: Tensor
    common: Tensor
    kept: dict[str, Any] = field(default_factory=dict)
    ids: npt.NDArray[np.int64] | None = None
    beyond: npt.NDArray[np.int64] | None = None
    given: tuple[Tensor, ...] = ()
    tells: npt.NDArray[np.bool_] | None = None
    planted: int = 0
    _propagation: dict[str, Propagation] = field(default_factory=dict)

    @classmethod
    def from_graph(cls, graph: GraphLike, like: NodeData | None = None) -> NodeData:
        """From numpy and scipy arrays, which are copied.

        A graph may have an attribute `common`, a graph of its own whose nodes all clients were
        given as a test; it is laid beside the client's, without an edge between. It may have one
        called `tune`, see the class, and `beyond` and `tells`, beside `nodes`, the own numbers.

        Args:
            graph: the arrays.
            like: what was made of a graph with the very same edges and features. They are taken
                from it, and so is the propagation, and nobody writes into them.

        Raises:
            ValueError: shapes disagree, an edge points outside the graph, masks overlap, or a
                mask holds an unlabelled node.
        """
        graphs = [graph]
        if (beside := getattr(graph, "common", None)) is not None:
            graphs.append(beside)
        for one in graphs:
            _check(one)
        sizes = [len(one.y) for one in graphs]
        own = np.arange(sum(sizes)) < sizes[0]
        tuned = getattr(graph, "tune", None)
        y = torch.from_numpy(np.concatenate([one.y for one in graphs]).astype(np.int64))
        roles: dict[str, Any] = {
            "y": y,
            "train": _mask(graph.train, own),
            "val": _mask(graph.val, own),
            "test": _mask(graph.test, own),
            "tune": _mask(False if tuned is None else tuned, own),
            "common": torch.from_numpy(~own),
        }
        if like is not None:
            return replace(like, **roles, kept={})
        before = np.cumsum([0, *sizes[:-1]])
        sparse = sp.issparse(graph.x)
        x = (sp.vstack if sparse else np.vstack)([one.x for one in graphs])
        edges = [np.asarray(one.edges) + shift for one, shift in zip(graphs, before, strict=True)]
        beyond, tells = getattr(graph, "beyond", None), getattr(graph, "tells", None)
        return cls(
            edges=torch.from_numpy(np.hstack(edges).astype(np.int64)),
            x=Sparse.of(sp.csr_array(x)) if sparse else torch.tensor(x, dtype=torch.float32),
            ids=None if beyond is None else np.array(graph.nodes),  # type: ignore[attr-defined]
            beyond=None if beyond is None else np.array(beyond),
            tells=None if tells is None else np.array(tells),
            **roles,
        )

    @property
    def count(self) -> int:
        """Number of training records."""
        return int(self.train.sum()) - self.planted

    @property
    def nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.y)

    @property
    def features(self) -> int:
        """Number of input features, F."""
        return int((self.x.matrix if isinstance(self.x, Sparse) else self.x).shape[1])

    def propagation(self, kind: Weighing) -> Propagation:
        """The propagation matrix of this kind, made once."""
        if kind not in self._propagation:
            self._propagation[kind] = propagation(self.edges, self.nodes, kind)
        return self._propagation[kind]

    def __repr__(self) -> str:
        return "<NodeData>"


def _mask(of: Any, own: npt.NDArray[np.bool_]) -> Tensor:
    """Return the client's mask as one over all nodes, False beside its own."""
    whole = np.zeros(len(own), dtype=bool)
    whole[own] = of
    return torch.from_numpy(whole)


def _check(graph: GraphLike) -> None:
    nodes = len(graph.y)
    tune = getattr(graph, "tune", None)
    found = (graph.train, graph.val, graph.test, *(() if tune is None else (tune,)))
    masks = [np.asarray(mask, dtype=bool) for mask in found]
    if graph.x.shape[0] != nodes or any(mask.shape != (nodes,) for mask in masks):
        raise ValueError(
            "features, labels and masks disagree on the number of nodes; each needs one entry a "
            "node: check how the graph was cut"
        )
    edges = np.asarray(graph.edges)
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError("edges must have the shape (2, M): one column for each undirected pair")
    if edges.size and (edges.min() < 0 or edges.max() >= nodes):
        raise ValueError(
            "an edge points outside the graph; node numbers must be local to the client's graph"
        )
    values = graph.x if isinstance(graph.x, np.ndarray) else graph.x.data
    if not np.isfinite(values).all():
        raise ValueError("the features hold NaN or infinity; clean or impute them before training")
    if np.sum(masks, axis=0).max(initial=0) > 1:
        raise ValueError("train, val, test (or tune) overlap; a node may have one role only")
    if (np.any(masks, axis=0) & (np.asarray(graph.y) < 0)).any():
        raise ValueError("an unlabelled node is in a split; leave such nodes out of all masks")
