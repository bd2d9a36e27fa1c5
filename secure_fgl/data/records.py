"""Records: a whole data set of one kind, and the part of it that one client holds.

Three kinds: `Graph` (one graph, classes of nodes), `GraphSet` (many graphs, labels of graphs) and
`Ratings` (who rated what, how). Every record is a simulation's view or one site's own data; all of
it is private, so every representation is mute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = [
    "ClientGraph",
    "ClientGraphs",
    "ClientRatings",
    "Dataset",
    "Features",
    "Graph",
    "GraphSet",
    "Masks",
    "Part",
    "Ratings",
]

Features: TypeAlias = "npt.NDArray[np.float32] | sp.csr_array"
"""One row a node, shape (N, F), float32."""


class Masks(NamedTuple):
    """Training, validation and test records of a data set, each bool (records,), disjoint.

    Records are nodes, graphs or ratings, by the kind of the data set.
    """

    train: npt.NDArray[np.bool_]
    val: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]


@dataclass(frozen=True, repr=False, eq=False)
class Graph:
    """A node-classification data set before it is shared out. Its representation is mute.

    Attributes:
        name: catalogue name.
        edges: int64 (2, M), each undirected pair once with u < v, no self-loops.
        x: features (N, F), dense or CSR.
        y: int64 (N,), -1 for no label.
        classes: number of classes.
        synthetic: whether it was generated.
        owner: int64 (N,), the natural owner of every node (which bank, which country), or None.
        public: the published split, where the set has one and it was asked for.
    """

    name: str
    edges: npt.NDArray[np.int64]
    x: Features
    y: npt.NDArray[np.int64]
    classes: int
    synthetic: bool
    owner: npt.NDArray[np.int64] | None = None
    public: Masks | None = None

    @property
    def nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.y)

    @property
    def records(self) -> int:
        """Number of records that may train or be predicted: nodes."""
        return len(self.y)

    def __repr__(self) -> str:
        return f"<Graph {self.name}>"


@dataclass(frozen=True, repr=False, eq=False)
class ClientGraph:
    """The subgraph that one client holds; edges that cross to another client are in nobody's.

    Attributes:
        edges: int64 (2, m), local node numbers, each undirected pair once with u < v.
        x: features (n, F), dense or CSR.
        y: int64 (n,), -1 for no label.
        train, val, test: bool (n,), disjoint.
        nodes: int64 (n,), each node's number in the whole graph, ascending. It exists so that
            simulations can compare with the truth; a real client does not know it.
        common: a test graph that every client was given, all of whose nodes are test nodes; it
            shares no node with any client's graph. None: there is none.
        tune: bool (n,), nodes of new classes that a model is tuned to before it predicts, in no
            split; None: there are none.
        beyond: int64 (2, b), edges to other clients' nodes: the local node, and the other end's
            number in the whole graph. Only partitions that say so give them, and with them `nodes`
            are names that the client knows. None: nobody knows such edges.
        tells: bool (n,), nodes whose terms this client, of all that hold them, adds to sums over
            such edges; None: all of those that an edge of `beyond` begins at.
    """

    edges: npt.NDArray[np.int64]
    x: Features
    y: npt.NDArray[np.int64]
    train: npt.NDArray[np.bool_]
    val: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]
    nodes: npt.NDArray[np.int64]
    common: ClientGraph | None = None
    tune: npt.NDArray[np.bool_] | None = None
    beyond: npt.NDArray[np.int64] | None = None
    tells: npt.NDArray[np.bool_] | None = None

    def __repr__(self) -> str:
        return "<ClientGraph>"


@dataclass(frozen=True, repr=False, eq=False)
class GraphSet:
    """Many graphs, each with its own labels (molecules, proteins). Its representation is mute.

    Attributes:
        name: catalogue name.
        sizes: int64 (G,), nodes of each graph; its nodes are numbered consecutively.
        edges: int64 (2, M) over the nodes of all graphs, each undirected pair once with u < v.
        x: features (N, F) of all nodes, dense or CSR.
        y: labels: int64 (G,), or with `multilabel` float32 (G, T) of 0, 1 and NaN for missing.
        classes: number of classes, or with `multilabel` of labels T.
        multilabel: whether each column of `y` is a yes-or-no question of its own.
        synthetic: whether it was generated.
        owner: int64 (G,), the natural owner of every graph (which source data set), or None.
    """

    name: str
    sizes: npt.NDArray[np.int64]
    edges: npt.NDArray[np.int64]
    x: Features
    y: npt.NDArray[Any]
    classes: int
    multilabel: bool
    synthetic: bool
    owner: npt.NDArray[np.int64] | None = None

    @property
    def records(self) -> int:
        """Number of graphs, G."""
        return len(self.sizes)

    def __repr__(self) -> str:
        return f"<GraphSet {self.name}>"


@dataclass(frozen=True, repr=False, eq=False)
class ClientGraphs:
    """The graphs that one client holds.

    Attributes:
        sizes, edges, x, y: as in `GraphSet`, renumbered.
        train, val, test: bool (g,), disjoint, one entry a graph.
        graphs: int64 (g,), each graph's number in the whole set, ascending; for simulations only.
    """

    sizes: npt.NDArray[np.int64]
    edges: npt.NDArray[np.int64]
    x: Features
    y: npt.NDArray[Any]
    train: npt.NDArray[np.bool_]
    val: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]
    graphs: npt.NDArray[np.int64]

    def __repr__(self) -> str:
        return "<ClientGraphs>"


@dataclass(frozen=True, repr=False, eq=False)
class Ratings:
    """Who rated what, and how: one entry a rating. Its representation is mute.

    Attributes:
        name: catalogue name.
        user, item: int64 (M,), numbers below `users` and `items`; no pair occurs twice.
        rating: float32 (M,), within `lowest` and `highest`.
        users, items: how many there are at most (public).
        lowest, highest: the scale (public).
        synthetic: whether it was generated.
        category: int64 (M,), what kind of item was rated, or None.
        public: the published split, where the set has one and it was asked for.
    """

    name: str
    user: npt.NDArray[np.int64]
    item: npt.NDArray[np.int64]
    rating: npt.NDArray[np.float32]
    users: int
    items: int
    lowest: float
    highest: float
    synthetic: bool
    category: npt.NDArray[np.int64] | None = None
    public: Masks | None = None

    @property
    def records(self) -> int:
        """Number of ratings, M."""
        return len(self.rating)

    def __repr__(self) -> str:
        return f"<Ratings {self.name}>"


@dataclass(frozen=True, repr=False, eq=False)
class ClientRatings:
    """The ratings that one client holds. Users and items keep their numbers.

    Attributes:
        user, item: int64 (m,).
        rating: float32 (m,).
        train, val, test: bool (m,), disjoint.
        rows: int64 (m,), each rating's row in the whole set, ascending; for simulations only.
    """

    user: npt.NDArray[np.int64]
    item: npt.NDArray[np.int64]
    rating: npt.NDArray[np.float32]
    train: npt.NDArray[np.bool_]
    val: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.int64]

    def __repr__(self) -> str:
        return "<ClientRatings>"


Dataset = Graph | GraphSet | Ratings
"""A whole data set of any kind."""

Part = ClientGraph | ClientGraphs | ClientRatings
"""What one client holds, of any kind."""
