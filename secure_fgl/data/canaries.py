"""Canaries at a client: made up of its own data, and put into its training by its coins.

A canary should be told from the client's records by nothing but being learnt. Each of its features
is that of a training record of the client drawn anew for each column, so ranges, scales and how
many are zero are those of the data, clips treat it alike, and no record is copied whole; nothing of
a record that is held out trains. Its
label is drawn evenly: nothing predicts it, so a model knows it only by having trained on it. A node
has no edge, so no neighbour dilutes it and it changes no other node's output; a graph has the shape
of one of the client's own; a rating is of a user and an item that have training ratings and no
rating of each other, so that no row of an item is new.

Where training hides single records (`policy.training`), canaries hold nothing of any: a record of
which many were made would move many gradients, and noise covers one. They follow from the secret
alone then: rings of nodes, each with a one in one column.

Canaries that lost their flip are nowhere in the data: they are exactly what the others would look
like, had they not trained.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from algorithms.nn._shared.ratings import Bipartite
from algorithms.nn._shared.sparse import Sparse
from algorithms.tasks import DataSpec, Site
from algorithms.tasks.inputs import GraphsData, NodeData, RatingsData
from protocols.evidence.captures import coins, content_key
from protocols.policy.policy import PrivacyPolicy
from protocols.roles.client import ClientSession
from protocols.sessions.engine import Session
from secure_fgl.errors import UsageError

__all__ = ["Made", "check_room", "made_up", "planted", "planting", "with_canaries"]

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class Made:
    """All canaries of one client, those that train and those that do not.

    Attributes:
        x: features, a row a node; of ratings None.
        y: labels or ratings, one a canary.
        sizes, edges: of graphs, the nodes of each and the edges within each, numbered from 0.
        pairs: of ratings, places of user and item at the client, (2, m).
    """

    x: Any
    y: Any
    sizes: tuple[int, ...] = ()
    edges: tuple[Any, ...] = ()
    pairs: Any = None


def made_up(data: Any, spec: DataSpec, key: bytes, records: int, *, hidden: bool = False) -> Made:
    """Return a client's canaries, which follow from its data and a key.

    Args:
        data: of the site, without canaries.
        spec: of the data.
        key: of the client, from `protocols.evidence.captures.content_key`.
        records: how many.
        hidden: whether training hides single records; then they follow from the key alone.

    Raises:
        UsageError: the data hold nothing to make them of.
    """
    rng = np.random.default_rng(list(key))
    if hidden and type(data) is GraphsData:
        return _rings(data.features, spec, records, rng)
    some = not hidden and bool(data.train.any())
    apart = type(data) is NodeData and data.ids is None and data.tells is None and not data.given
    if some and apart and data.count > 1:  # of one record each would be a copy
        x = _csr(data.x)[np.flatnonzero(data.train.numpy())]
        return Made(_columns(x, records, rng), _labels(spec, records, rng))
    if some and type(data) is GraphsData:
        return _graphs(data, spec, records, rng)
    if some and type(data) is RatingsData:
        return _ratings(data, records, rng)
    raise UsageError(
        "Canaries cannot be put into these data.",
        why="nodes with edges to other clients, one training node alone, or no training records",
        fix="leave canaries out of the policy, or take a task on nodes, graphs or ratings",
    )


def with_canaries(data: Any, made: Made, chosen: Bools) -> Any:
    """Return a client's data with some of its canaries among the training records, at the end.

    Args:
        data: without canaries.
        made: all of them.
        chosen: which of them, (m,).
    """
    more = int(chosen.sum())
    where = torch.from_numpy(chosen)
    roles: dict[str, Any] = {
        name: torch.cat([getattr(data, name), torch.full((more,), name == "train")])
        for name in ("train", "val", "test", "tune", "common")
        if hasattr(data, name)
    }
    roles["planted"] = data.planted + more
    if isinstance(data, NodeData):
        x = _stacked(data.x, made.x[chosen])
        y = torch.cat([data.y, torch.from_numpy(made.y)[where]])
        return replace(data, x=x, y=y, kept={}, _propagation={}, **roles)
    if isinstance(data, GraphsData):
        return _with_graphs(data, made, chosen, roles)
    pairs = torch.cat(
        [torch.stack([data.user, data.item]), torch.from_numpy(made.pairs)[:, where]], dim=1
    )
    rating = torch.cat([data.rating, torch.from_numpy(made.y)[where]])
    train = roles["train"]
    graph = Bipartite(pairs[:, train], len(data.users), len(data.items), rating[train])
    return replace(data, user=pairs[0], item=pairs[1], rating=rating, graph=graph, **roles)


@contextlib.contextmanager
def planting(
    sessions: Mapping[str, Session],
    sites: Mapping[str, Site],
    spec: DataSpec,
    apart: Callable[[Session], None] | None = None,
) -> Iterator[None]:
    """Put each client's canaries into its site, and take them out again at the end.

    Args:
        sessions: of all parties of this process; clients without canaries are left alone.
        sites: of the clients.
        spec: of the data.
        apart: hands a session's canaries over to where its site trains; None: it trains here.

    Raises:
        UsageError: a client's data hold nothing to make canaries of.
    """
    real: dict[str, Any] = {}
    if apart is not None:
        for session in sessions.values():
            apart(session)
        sessions = {}
    try:
        _plant(sessions, sites, spec, real)
        del sessions  # else sessions that go to a worker would stay here as well (O26)
        yield
    finally:
        for name, data in real.items():
            sites[name].data = data


def _plant(
    sessions: Mapping[str, Session],
    sites: Mapping[str, Site],
    spec: DataSpec,
    real: dict[str, Any],
) -> None:
    """Put canaries into sites, and what the sites held before into `real`."""
    for name, session in sessions.items():
        if isinstance(session, ClientSession) and session.canary_secret:
            site, policy, secret = sites[name], session.context.policy, session.canary_secret
            real[name], hidden = site.data, policy.training is not None
            flips = coins(secret, policy.canaries.records)  # type: ignore[union-attr]
            site.data = planted(site.data, spec, content_key(secret), flips, hidden=hidden)
            session.planted = True


def planted(data: Any, spec: DataSpec, key: bytes, chosen: Bools, *, hidden: bool = False) -> Any:
    """Return a client's data with those of its canaries that are chosen, (m,); see `made_up`."""
    return with_canaries(data, made_up(data, spec, key, len(chosen), hidden=hidden), chosen)


def check_room(
    clients: Sequence[str], sites: Sequence[Site], spec: DataSpec, policy: PrivacyPolicy
) -> None:
    """See that a policy's canaries can be put into clients' sites, before anything is written.

    Raises:
        UsageError: a client's data cannot hold them; it is named.
    """
    if (canaries := policy.canaries) is None:
        return
    for name, site in zip(clients, sites, strict=True):
        try:
            hidden = policy.training is not None
            made_up(site.data, spec, bytes(32), canaries.records, hidden=hidden)
        except UsageError as error:
            raise UsageError(f"{error.what} ({name})", why=error.why, fix=error.fix) from error


def _csr(x: Any) -> Any:
    """Return features as sparse rows."""
    if isinstance(x, Sparse):
        m = x.matrix
        parts: Any = tuple(p.numpy() for p in (m.values(), m.col_indices(), m.crow_indices()))
        return sp.csr_array(parts, shape=(m.shape[0], m.shape[1]))
    return sp.csr_array(x.numpy() if isinstance(x, torch.Tensor) else x)


def _columns(x: Any, count: int, rng: np.random.Generator) -> Any:
    """Return rows (count, F) of which each column is drawn from the rows of the data.

    By rank: who learns canaries, and their key once it is opened, learns of no two columns that
    they are of one record.
    """
    (nodes, width), columns = x.shape, x.tocsc()
    found = np.zeros((count, width), dtype=np.float32)
    for column in range(width):
        whole = np.zeros(nodes, dtype=np.float32)
        inside = slice(columns.indptr[column], columns.indptr[column + 1])
        whole[columns.indices[inside]] = columns.data[inside]
        found[:, column] = np.sort(whole)[rng.integers(nodes, size=count)]
    return found


def _labels(spec: DataSpec, count: int, rng: np.random.Generator) -> Any:
    """Return labels that nothing predicts."""
    if spec.multilabel:
        return rng.integers(2, size=(count, spec.classes)).astype(np.float32)
    return rng.integers(spec.classes, size=count).astype(np.int64)


def _stacked(x: Any, rows: Any) -> Any:
    if isinstance(x, Sparse):
        return Sparse.of(sp.csr_array(sp.vstack([_csr(x), sp.csr_array(rows)])))
    if isinstance(x, torch.Tensor):
        return torch.cat([x, torch.from_numpy(rows)])
    return sp.csr_array(sp.vstack([x, sp.csr_array(rows)]))


def _graphs(data: GraphsData, spec: DataSpec, records: int, rng: np.random.Generator) -> Made:
    train = data.train.numpy()
    like = rng.choice(np.flatnonzero(train), size=records)
    starts = np.cumsum(data.sizes) - data.sizes
    owner = np.repeat(np.arange(data.graphs), data.sizes)
    ends = data.edges.numpy()
    of = owner[ends[0]] if ends.size else np.zeros(0, dtype=np.int64)
    edges = tuple(ends[:, of == graph] - starts[graph] for graph in like)
    sizes = tuple(int(size) for size in data.sizes[like])
    rows = np.flatnonzero(train[owner])
    return Made(
        _columns(_csr(data.x)[rows], sum(sizes), rng), _labels(spec, records, rng), sizes, edges
    )


def _rings(width: int, spec: DataSpec, records: int, rng: np.random.Generator) -> Made:
    """Return graphs in which nothing is the data's."""
    sizes = tuple(int(size) for size in rng.integers(3, 20, size=records))
    edges = tuple(np.stack([np.arange(n), (np.arange(n) + 1) % n]) for n in sizes)
    x = np.eye(width, dtype=np.float32)[rng.integers(width, size=sum(sizes))]
    return Made(x, _labels(spec, records, rng), sizes, edges)


def _with_graphs(data: GraphsData, made: Made, chosen: Bools, roles: Mapping[str, Any]) -> Any:
    sizes = np.array(made.sizes, dtype=np.int64)
    firsts = int(data.sizes.sum()) + np.cumsum(np.where(chosen, sizes, 0)) - sizes
    shifted = [made.edges[n] + firsts[n] for n in np.flatnonzero(chosen)]
    edges = np.hstack([data.edges.numpy(), *shifted]).astype(np.int64)
    y = torch.cat([data.y, torch.from_numpy(made.y)[torch.from_numpy(chosen)]])
    return replace(
        data,
        sizes=np.concatenate([data.sizes, sizes[chosen]]),
        edges=torch.from_numpy(edges),
        x=_stacked(data.x, made.x[np.repeat(chosen, sizes)]),
        y=y,
        _blocks={},
        _latest={},
        **roles,
    )


def _ratings(data: RatingsData, records: int, rng: np.random.Generator) -> Made:
    train, user, item = (found.numpy() for found in (data.train, data.user, data.item))
    items = len(data.items)
    inside = np.unique(user[train])[:, None] * items + np.unique(item[train])
    free = np.setdiff1d(inside, user * items + item)
    if len(free) < records:
        raise UsageError(
            f"A client has fewer than {records} pairs of a user and an item without a rating.",
            why="a canary is a rating of one user for one item that both have training ratings",
            fix="lower canaries.records, or leave canaries out where a client is one user",
        )
    place = rng.permutation(free)[:records]
    values = np.unique(data.rating.numpy()[train])
    return Made(
        None,
        rng.choice(values, size=records).astype(np.float32),
        pairs=np.stack([place // items, place % items]).astype(np.int64),
    )
