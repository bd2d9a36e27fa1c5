"""What tasks learn from: a client's graph, graphs or ratings as tensors, checked once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from algorithms.nn import ModelFile
from algorithms.nn._shared.graphs import Blocks, GraphBatch
from algorithms.nn._shared.layouts import Weighing
from algorithms.nn._shared.ratings import Bipartite
from algorithms.nn._shared.sparse import Features, Propagation, Sparse, propagation, rows
from algorithms.tasks import Split
from algorithms.tasks.ego_graphs import Neighbours

__all__ = [
    "GraphLike",
    "GraphsData",
    "GraphsLike",
    "Near",
    "NodeData",
    "RatingsData",
    "RatingsLike",
    "heard",
    "near",
    "sampled",
]

Numbers = npt.NDArray[np.int64]


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
            _check_nodes(one)
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


def _check_nodes(graph: GraphLike) -> None:
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


_MOST = 8
"""How many sets of nodes a site keeps; it trains on two or three."""


class Near(NamedTuple):
    """A part of a graph.

    Attributes:
        x: features of its nodes, (m, F).
        propagation: (m, m), with the whole graph's weights.
        places: int64 (n,), where in it the nodes are that were asked about.
    """

    x: Features
    propagation: Propagation
    places: Tensor


def near(
    data: NodeData,
    records: npt.NDArray[np.int64],
    kind: Weighing,
    *,
    hops: int,
    linear: bool,
) -> Near:
    """Return the nodes within `hops` of some records, made once for each set of them.

    A model of that many layers gives the records the outputs that it gives them on the whole graph:
    weights are the whole graph's, and only nodes on the rim miss neighbours.

    Args:
        data: the graph.
        records: int64 (n,), the nodes that are asked about.
        kind: of the propagation matrix P.
        hops: layers of the model, K.
        linear: the model computes P^K X W + b: then the rows of P^K X are made, for these nodes
            alone (of the whole graph they would be dense), and P is the identity.
    """
    made: dict[bytes, Near] = data.kept.setdefault("near", {})
    key = records.tobytes()
    if key not in made:
        if len(made) >= _MOST:
            made.clear()
        links = _scipy(data.propagation(kind))
        made[key] = (
            _product(data, records, links, hops) if linear else _part(data, records, links, hops)
        )
    return made[key]


def _part(data: NodeData, records: npt.NDArray[np.int64], links: sp.csr_array, hops: int) -> Near:
    reached = np.unique(records)
    for _ in range(hops):
        reached = np.union1d(reached, links[reached].indices)
    inner = sp.csr_array(links[reached][:, reached])
    places = torch.from_numpy(np.searchsorted(reached, records))
    return Near(rows(data.x, reached), Sparse.of(inner), places)


def _product(
    data: NodeData, records: npt.NDArray[np.int64], links: sp.csr_array, hops: int
) -> Near:
    heard = links[records] if hops else sp.csr_array(sp.eye_array(data.nodes))[records]
    for _ in range(hops - 1):
        heard = heard @ links
    places = torch.arange(len(records))
    itself = Sparse.of(sp.csr_array(sp.eye_array(len(records))))
    if isinstance(data.x, Sparse):
        return Near(Sparse.of(sp.csr_array(heard @ _scipy(data.x))), itself, places)
    return Near(torch.tensor(heard @ data.x.numpy(), dtype=torch.float32), itself, places)


def _scipy(sparse: Sparse) -> sp.csr_array:
    """Return a view as a scipy matrix."""
    matrix = sparse.matrix
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    height, width = matrix.shape
    return sp.csr_array(tuple(part.numpy() for part in parts), shape=(height, width))


def heard(
    file: ModelFile, data: NodeData, records: Numbers, *, hops: int, draws: torch.Generator
) -> Near:
    """Return what a model reads of a graph in training: drawn neighbours, or all within its hops.

    Args:
        file: the model's.
        data: the graph.
        records: int64 (n,), nodes.
        hops: layers of the model.
        draws: draws neighbours where the file says `FAN_OUT`.
    """
    if fan_out := getattr(file, "FAN_OUT", 0):
        return sampled(data, records, fan_out=fan_out, hops=hops, draws=draws)
    linear = getattr(file, "LINEAR", False)
    return near(data, records, file.PROPAGATION, hops=hops, linear=linear)


def sampled(
    data: NodeData, records: Numbers, *, fan_out: int, hops: int, draws: torch.Generator
) -> Near:
    """Return the nodes that are drawn within `hops` of some records, and whom each of them hears.

    A node draws once a call and without replacement, and hears the mean of whom it drew; with no
    more than `fan_out` neighbours it hears all. A model of `hops` layers that reads means gives the
    records what it gives them on this part; nodes on the rim hear nobody.

    Args:
        data: the graph.
        records: int64 (n,), the batch.
        fan_out: the most neighbours of a node.
        hops: layers of the model that read neighbours.
        draws: draws neighbours.
    """
    lists = data.kept.get("neighbours")
    if lists is None:
        lists = data.kept["neighbours"] = Neighbours.of(data.edges.numpy(), data.nodes)
    reached = asked = np.unique(records)
    pairs = [np.empty((2, 0), dtype=np.int64)]
    for _ in range(hops):
        pairs.append(_drawn(lists, asked, fan_out, draws))
        asked = np.setdiff1d(pairs[-1][1], reached)
        reached = np.union1d(reached, asked)
    hears, told = np.searchsorted(reached, np.hstack(pairs))
    size = len(reached)
    weight = 1.0 / np.bincount(hears, minlength=size)[hears]
    links = sp.csr_array((weight.astype(np.float32), (hears, told)), shape=(size, size))
    places = torch.from_numpy(np.searchsorted(reached, records))
    return Near(rows(data.x, reached), Sparse.of(links), places)


def _drawn(lists: Neighbours, nodes: Numbers, fan_out: int, draws: torch.Generator) -> Numbers:
    """Return pairs of a node and a neighbour that it drew, int64 (2, m)."""
    first = lists.starts[nodes]
    degree = lists.starts[nodes + 1] - first
    begins = np.cumsum(degree) - degree
    owner = np.repeat(np.arange(len(nodes)), degree)
    listed = lists.listed[np.arange(len(owner)) + (first - begins)[owner]]
    lot = torch.rand(len(owner), generator=draws, dtype=torch.float64).numpy()
    order = np.lexsort((lot, owner))  # owners stay in their order, their neighbours are shuffled
    kept = order[np.arange(len(owner)) - begins[owner] < fan_out]
    return np.stack([nodes[owner[kept]], listed[kept]])


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
        _check_graphs(graphs)
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


def _check_graphs(graphs: GraphsLike) -> None:
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


class RatingsLike(Split, Protocol):
    """Arrays from which `RatingsData` is built; `secure_fgl.data.ClientRatings` is one."""

    @property
    def user(self) -> npt.NDArray[np.int64]:
        """Who rated, int64 (M,)."""

    @property
    def item(self) -> npt.NDArray[np.int64]:
        """What was rated, int64 (M,)."""

    @property
    def rating(self) -> npt.NDArray[np.float32]:
        """How, float32 (M,)."""


@dataclass(frozen=True, repr=False, eq=False)
class RatingsData:
    """One client's ratings, ready for training. Everything here is private.

    Attributes:
        users, items: int64, numbers of the users and items that the client has a rating of,
            training or not, ascending.
        user, item: int64 (M,), places in `users` and `items`.
        rating: float32 (M,), as given.
        train, val, test: bool (M,), disjoint.
        graph: of the training ratings alone.
        sizes: how many users and items there are at most (public).
        planted: how many of the training ratings the client made up as canaries; `count` leaves
            them out.
    """

    users: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    user: Tensor
    item: Tensor
    rating: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    graph: Bipartite
    sizes: tuple[int, int]
    planted: int = 0

    @classmethod
    def from_ratings(cls, part: RatingsLike, users: int, items: int) -> RatingsData:
        """From numpy arrays, which are copied.

        Args:
            part: one client's ratings.
            users: how many there are at most, as `DataSpec` says.
            items: likewise.

        Raises:
            ValueError: shapes disagree, a number is out of range, a rating is not finite, a pair
                occurs twice or masks overlap.
        """
        _check_ratings(part, users, items)
        own_users, user = np.unique(np.asarray(part.user, dtype=np.int64), return_inverse=True)
        own_items, item = np.unique(np.asarray(part.item, dtype=np.int64), return_inverse=True)
        train, val, test = (
            torch.from_numpy(np.array(mask, dtype=bool))
            for mask in (part.train, part.val, part.test)
        )
        pairs = torch.from_numpy(np.stack([user, item]).astype(np.int64))
        rating = torch.tensor(part.rating, dtype=torch.float32)
        seen = Bipartite(pairs[:, train], len(own_users), len(own_items), rating[train])
        return cls(
            users=own_users,
            items=own_items,
            user=pairs[0],
            item=pairs[1],
            rating=rating,
            train=train,
            val=val,
            test=test,
            graph=seen,
            sizes=(users, items),
        )

    @property
    def count(self) -> int:
        """Number of training ratings."""
        return int(self.train.sum()) - self.planted

    def __repr__(self) -> str:
        return "<RatingsData>"


def _check_ratings(part: RatingsLike, users: int, items: int) -> None:
    ratings = len(part.rating)
    masks = [np.asarray(mask, dtype=bool) for mask in (part.train, part.val, part.test)]
    if any(np.shape(column) != (ratings,) for column in (part.user, part.item, *masks)):
        raise ValueError(
            "users, items, ratings and masks differ in length; each needs one entry a rating: "
            "check how the ratings were cut"
        )
    for numbers, size, what in ((part.user, users, "a user"), (part.item, items, "an item")):
        if ratings and (np.min(numbers) < 0 or np.max(numbers) >= size):
            raise ValueError(
                f"the number of {what} is out of range; number users and items from 0, alike at "
                "all clients, and let DataSpec.users and items be how many there are"
            )
    if not np.isfinite(part.rating).all():
        raise ValueError("the ratings hold NaN or infinity; leave such rows out before training")
    if np.sum(masks, axis=0).max(initial=0) > 1:
        raise ValueError("train, val and test overlap; a rating may have one role only")
    pairs = np.asarray(part.user, dtype=np.int64) * items + np.asarray(part.item, dtype=np.int64)
    if len(np.unique(pairs)) != ratings:
        raise ValueError(
            "a user rates an item twice; keep one of the two rows, or a test rating could be "
            "among the training ratings"
        )
