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


# --- Training, validation and test records, drawn over the whole set before it is shared out ---

Records = npt.NDArray[np.int64]
"""Numbers of records in the whole set."""

HELD_BACK = 0.1
"""Share of a published training part that validates where the published split has no validation;
with the usual 80/20 of ratings that leaves 72/8/20."""


def split_masks(
    whole: Dataset,
    shares: tuple[float, float, float] = (0.2, 0.4, 0.4),
    *,
    rng: np.random.Generator,
    public: bool = False,
    stratify: bool = True,
) -> Masks:
    """Stratified masks over the labelled records; an unlabelled record is in none.

    Drawing before partitioning gives a record the same role at every client that holds it, so
    nobody's test record trains somewhere else. Records are lined up stratum by stratum (see
    `strata`), in random order within one, and roles are dealt along the line at even distances:
    each stratum gets its share of every role to within two records, and the training records are
    floor(share x labelled) exactly, which is what `spec_of` promises as an upper bound.

    For ratings the strata are users: with a training share of a third or more, every user with
    three ratings has one that trains. With a smaller share s it takes 1/s ratings.

    Args:
        whole: the whole data set.
        shares: of training, validation and test, positive or zero, summing to 1.
        rng: source of the random order.
        public: take the published split instead, `shares` then being unused. If it has no
            validation part, a tenth of its training records is moved there, stratified, and every
            stratum keeps a training record.
        stratify: False deals over all labelled records alike; FedGraphNN (He et al. 2021) splits
            Ciao's ratings so.

    Raises:
        ValueError: the shares are negative, do not sum to 1, or leave no training share; or there
            is no published split.
    """
    if public:
        return _published(whole, rng)
    kinds = strata(whole)
    if not stratify:
        kinds = np.minimum(kinds, 0)
    return Masks(*(_mask(whole.records, role) for role in deal(_all(whole), kinds, shares, rng)))


def strata(whole: Dataset) -> Records:
    """What each record is stratified by, int64 (records,); -1 for a record without a label.

    Nodes and graphs: the label. Graphs with several labels: the first one, where "missing" counts
    as a class of its own (2); a graph that misses them all has no label. Ratings: the user.
    """
    if isinstance(whole, Graph):
        return whole.y
    if isinstance(whole, GraphSet):
        if not whole.multilabel:
            return whole.y.astype(np.int64)
        missing = np.isnan(whole.y)
        first = np.where(missing[:, 0], 2, whole.y[:, 0])
        return np.where(missing.all(axis=1), -1, first).astype(np.int64)
    return whole.user


def deal(
    records: Records,
    strata: Records,
    shares: tuple[float, float, float],
    rng: np.random.Generator,
) -> tuple[Records, Records, Records]:
    """Training, validation and test records among `records`, stratified; each ascending.

    Args:
        records: int64 (n,), the records that take part.
        strata: int64 (N,), of every record of the whole set; those of -1 get no role.
        shares: as for `split_masks`.
        rng: source of the random order.

    Raises:
        ValueError: the shares are negative, do not sum to 1, or leave no training share.
    """
    train_share, val_share, test_share = shares
    if min(shares) < 0.0 or train_share == 0.0 or abs(sum(shares) - 1.0) > 1e-9:
        raise ValueError(
            "shares of train, val and test must be 0 or more, sum to 1, and train above 0"
        )
    line = _lined_up(records[strata[records] >= 0], strata, rng)
    to_train = _evenly(len(line), train_share)
    rest = line[~to_train]
    held_out = val_share + test_share
    to_val = _evenly(len(rest), val_share / held_out if held_out else 0.0)
    return np.sort(line[to_train]), np.sort(rest[to_val]), np.sort(rest[~to_val])


def _published(whole: Dataset, rng: np.random.Generator) -> Masks:
    masks = None if isinstance(whole, GraphSet) else whole.public
    if masks is None:
        raise ValueError(
            f"the data set {whole.name!r} carries no published split; ask its source for one (an "
            "option of the data set), or give shares instead"
        )
    if masks.val.any():
        return masks
    kinds = strata(whole)
    line = _lined_up(np.flatnonzero(masks.train), kinds, rng)
    kept = np.diff(kinds[line], prepend=-2) != 0  # the first of every stratum goes on training
    spare = line[~kept]
    share = min(1.0, HELD_BACK * len(line) / max(1, len(spare)))
    val = _mask(whole.records, spare[_evenly(len(spare), share)])
    return Masks(masks.train & ~val, val, masks.test)


def _all(whole: Dataset) -> Records:
    return np.arange(whole.records)


def _lined_up(records: Records, strata: Records, rng: np.random.Generator) -> Records:
    """Records stratum by stratum, in random order within one."""
    line = rng.permutation(records)
    return line[np.argsort(strata[line], kind="stable")]


def _mask(records: int, members: Records) -> npt.NDArray[np.bool_]:
    mask = np.zeros(records, dtype=bool)
    mask[members] = True
    return mask


def _evenly(count: int, share: float) -> npt.NDArray[np.bool_]:
    """Mark floor(share x count) places of a line at even distances, bool (count,)."""
    reached = np.floor(np.arange(count + 1) * share + 1e-9)  # 1e-9: 5 x 0.2 is to reach 1
    marked: npt.NDArray[np.bool_] = np.diff(reached) > 0
    return marked
