"""What several partitions share: Dirichlet sizes, few labels, cut edges, communities."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import ClientGraph, Graph, Masks

if TYPE_CHECKING:
    import scipy.sparse as sp

# --- What the rules share ---

Records = npt.NDArray[np.int64]
"""Numbers of records in the whole set."""


class Cut(NamedTuple):
    """What one client gets: numbers of records in the whole set, int64, ascending.

    Attributes:
        members: all its records. Nodes and ratings occur once; a graph may occur several times
            where the rule draws with replacement.
        train, val, test: its roles, disjoint subsets of `members`, each number once.
        common: nodes of a test graph that every client is given, no client's members; None: no
            such graph.
        tune: nodes of new classes that a model is tuned to; a subset of `members` apart from the
            three roles. None: none.
        labels: the client's labels, one a member, -1 for a node whose label it does not know;
            None: those of the whole set.
    """

    members: Records
    train: Records
    val: Records
    test: Records
    common: Records | None = None
    tune: Records | None = None
    labels: Records | None = None


def groups(owner: Records, clients: int) -> list[Records]:
    """The records of each client, ascending; those of owner -1 are nobody's."""
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(clients + 1))
    return [order[start:end] for start, end in pairwise(bounds)]


def with_roles(members: list[Records], masks: Masks) -> list[Cut]:
    """Cuts whose roles are those drawn over the whole set."""
    return [Cut(of, *(np.unique(of[mask[of]]) for mask in masks)) for of in members]


def as_many(name: str, found: int, what: str, clients: int) -> None:
    """Check that the data has one part a client.

    Raises:
        ValueError: it has not.
    """
    if found != clients:
        raise ValueError(
            f"the data set {name!r} has {found} {what} and {clients} clients were asked for; make "
            "the two numbers equal"
        )


# --- Slices of random sizes, drawn again until nobody goes empty ---

ATTEMPTS = 1000
"""Draws before giving up; the published programs loop for ever."""


def sliced(line: Records, weights: npt.NDArray[np.float64]) -> list[Records]:
    """Consecutive slices of a line, as long as their weights say, rounded down cumulatively.

    So do FedGraphNN and FedGCN; `weights` are 0 or more, and not all 0.
    """
    reached = np.cumsum(weights / weights.sum())[:-1]
    return np.split(line, (reached * len(line)).astype(np.int64))


def drawn(
    draw: Callable[[], list[Records]], *, beta: float, least: int, records: int
) -> list[Records]:
    """The first of the draws in which every client gets `least` records.

    Args:
        draw: one attempt, one array a client.
        beta: concentration, for the error; must be above 0.
        least: records of each client, 0 or more.
        records: how many there are to share.

    Raises:
        ValueError: beta or least is out of range, or no draw succeeds.
    """
    if not beta > 0.0 or not np.isfinite(beta) or least < 0:
        raise ValueError("beta must be above 0 and finite, and least must be 0 or more")
    for _ in range(ATTEMPTS):
        slices = draw()
        if len(slices) * least > records:
            break
        if min(map(len, slices)) >= least:
            return slices
    raise ValueError(
        f"no way was found to share {records} records so that every client gets {least} at beta "
        f"{beta:g}: ask for fewer clients, a larger beta, or a smaller least"
    )


# --- What the rules with few labels share: drawing roles over the whole graph, and hiding the rest
# ---


class Roles(NamedTuple):
    """Nodes by role, int64, apart; `train` in random order, the others ascending."""

    train: Records
    val: Records
    test: Records


def drawn_roles(
    graph: Graph, rng: np.random.Generator, per_class: int, val_nodes: int, test_nodes: int
) -> Roles:
    """Return `per_class` training nodes of each class, and held-out nodes among all others.

    Raises:
        ValueError: an option is out of range, or the graph has too few labelled nodes.
    """
    if min(per_class, val_nodes, test_nodes) < 1:
        raise ValueError("per_class, val_nodes and test_nodes must be 1 or more")
    order = rng.permutation(np.flatnonzero(graph.y >= 0))
    of_class = [order[graph.y[order] == label][:per_class] for label in range(graph.classes)]
    train = np.concatenate(of_class)
    rest = np.setdiff1d(order, train)
    if min(map(len, of_class)) < per_class or len(rest) < val_nodes + test_nodes:
        raise ValueError(
            f"{graph.name!r} has too few labelled nodes for {per_class} training nodes of each "
            f"class, {val_nodes} validation and {test_nodes} test nodes; lower per_class, "
            "val_nodes or test_nodes"
        )
    val, test = np.split(rng.permutation(rest)[: val_nodes + test_nodes], [val_nodes])
    return Roles(rng.permutation(train), np.sort(val), np.sort(test))


def known(graph: Graph, members: Records, *roles: Records) -> Records:
    """Return a client's labels, one a member: -1 where the node has none of these roles."""
    told = np.isin(members, np.concatenate(roles))
    labels: Records = np.where(told, graph.y[members], -1)
    return labels


# --- Edges between clients, by number: which of them each client knows ---


def of_homes(parts: list[ClientGraph], whole: Graph) -> list[ClientGraph]:
    """Return the parts with their edges to other clients' nodes.

    A node that several clients hold belongs to one of them, these in turn by its number. An edge is
    between two clients if its ends belong to two of which neither holds the other's end.
    """
    held = np.zeros((len(parts), whole.nodes), dtype=bool)
    for client, part in enumerate(parts):
        held[client, part.nodes] = True
    home, turn = np.full(whole.nodes, -1), np.arange(whole.nodes) % np.maximum(held.sum(axis=0), 1)
    for client, here in enumerate(held):
        home[here & (turn == 0)] = client
        turn[here] -= 1
    both = np.hstack([whole.edges, whole.edges[::-1]])  # each end once as one's own
    one, other = home[both]
    apart = (one != other) & (one >= 0) & (other >= 0)
    apart &= ~held[one, both[1]] & ~held[other, both[0]]
    found = []
    for client, part in enumerate(parts):
        here, there = both[:, apart & (one == client)]
        beyond = np.stack([np.searchsorted(part.nodes, here), there])
        found.append(replace(part, beyond=beyond[:, np.lexsort(beyond[::-1])]))
    return found


def of_all(parts: list[ClientGraph], whole: Graph) -> list[ClientGraph]:
    """Return the parts with their edges to nodes that others hold and they do not.

    Of a node that several hold the first one tells its terms, so that sums count it once.
    """
    teller = np.full(whole.nodes, -1, dtype=np.int64)
    for place, part in reversed(list(enumerate(parts))):
        teller[part.nodes] = place
    both = np.hstack([whole.edges, whole.edges[::-1]])  # each end once as one's own
    shared = sum(len(part.nodes) for part in parts) > int((teller >= 0).sum())
    found = []
    for place, part in enumerate(parts):
        local = np.full(whole.nodes, -1, dtype=np.int64)
        local[part.nodes] = np.arange(len(part.nodes))
        crossing = both[:, (local[both[0]] >= 0) & (local[both[1]] < 0) & (teller[both[1]] >= 0)]
        beyond = np.stack([local[crossing[0]], crossing[1]])
        tells = teller[part.nodes] == place if shared else None
        found.append(replace(part, beyond=beyond[:, np.lexsort(beyond[::-1])], tells=tells))
    return found


# --- Louvain communities on sparse matrices ---
#
# Blondel et al., Fast unfolding of communities in large networks, 2008: move nodes between
# communities while modularity grows, merge each community into one node, repeat. As in the fast
# local move of Traag, Waltman and van Eck (From Louvain to Leiden, 2019, section 2), a node is
# looked at again only after one of its neighbours has moved; on coauthor_physics that is about ten
# times faster than networkx, which sweeps over all nodes, and modularity agrees to within 0.01.

LEAST_GAIN = 1e-9
"""Gains below this, in edge weights, are rounding: without a floor, ties could swap for ever."""


def communities(
    edges: npt.NDArray[np.int64], nodes: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Community of every node, int64 (N,), numbered from 0; deterministic in `rng`.

    Args:
        edges: int64 (2, M), each undirected pair once, no self-loops.
        nodes: N.
        rng: the order in which nodes are visited.
    """
    import scipy.sparse as sp

    ends = (np.concatenate([edges[0], edges[1]]), np.concatenate([edges[1], edges[0]]))
    weights = sp.csr_array((np.ones(ends[0].size), ends), shape=(nodes, nodes))
    found = np.arange(nodes)
    while True:
        joined = _local_moves(weights, rng)
        count = int(joined.max(initial=-1)) + 1
        if count == weights.shape[0]:
            return found
        found = joined[found]
        gather = sp.csr_array(
            (np.ones(joined.size), (np.arange(joined.size), joined)), shape=(joined.size, count)
        )
        # The diagonal then holds twice the weight inside each community, as degrees need it.
        weights = sp.csr_array(gather.T @ weights @ gather)


def _local_moves(weights: sp.csr_array, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Communities after moving single nodes until no move helps, numbered from 0."""
    size = weights.shape[0]
    # Plain lists: a Python loop reads them several times faster than numpy arrays.
    bounds = weights.indptr.tolist()
    columns, values = weights.indices.tolist(), weights.data.tolist()
    near = [columns[a:b] for a, b in pairwise(bounds)]
    worth = [values[a:b] for a, b in pairwise(bounds)]
    degree = [sum(row) for row in worth]
    total = list(degree)
    twice_m = sum(degree) or 1.0  # a graph without edges has no gains to compare
    community = list(range(size))
    queue = deque(rng.permutation(size).tolist())
    queued = [True] * size
    while queue:
        node = queue.popleft()
        queued[node] = False
        toward: dict[int, float] = {}
        for other, weight in zip(near[node], worth[node], strict=True):
            if other != node:
                there = community[other]
                toward[there] = toward.get(there, 0.0) + weight
        own, pull = community[node], degree[node]
        total[own] -= pull
        best, most = own, toward.get(own, 0.0) - pull * total[own] / twice_m + LEAST_GAIN
        for there, weight in toward.items():
            gain = weight - pull * total[there] / twice_m
            if gain > most:
                best, most = there, gain
        total[best] += pull
        if best != own:
            community[node] = best
            for other in near[node]:
                if not queued[other] and community[other] != best:
                    queued[other] = True
                    queue.append(other)
    return np.unique(community, return_inverse=True)[1].astype(np.int64)


# --- METIS (Karypis and Kumar, A fast and high quality multilevel scheme, 1998), through pymetis
# ---


def parts(graph: Graph, count: int, rng: np.random.Generator) -> Records:
    """Part of every node, int64 (N,) in [0, count), none empty: few edges cross, sizes are even.

    Multilevel k-way, as FED-PUB runs it; METIS' own seed comes from `rng`, so the result is
    deterministic for one version of METIS.

    Raises:
        ImportError: pymetis is not installed.
        ValueError: the graph is too small for so many parts.
    """
    try:
        import pymetis
    except ImportError as error:
        missing = ImportError("the metis partitions need pymetis, which is not installed")
        missing.add_note("What to do: pip install 'secure-fgl[metis]', or choose louvain_balanced")
        raise missing from error
    near = _both_ways(graph.edges, graph.nodes)
    index: npt.DTypeLike = pymetis.zero_copy_dtype()
    found = pymetis.part_graph(
        count,
        pymetis.CSRAdjacency(near.indptr.astype(index), near.indices.astype(index)),
        recursive=False,
        options=pymetis.Options(seed=int(rng.integers(2**31 - 1))),
    )
    part = np.asarray(found.vertex_part, dtype=np.int64)
    if len(np.unique(part)) != count:
        raise ValueError(
            f"METIS found fewer than {count} parts in {graph.nodes} nodes; ask for fewer clients"
        )
    return part


def _both_ways(edges: Records, nodes: int) -> sp.csr_array:
    import scipy.sparse as sp

    ends = (np.concatenate([edges[0], edges[1]]), np.concatenate([edges[1], edges[0]]))
    return sp.csr_array((np.ones(ends[0].size, dtype=np.int8), ends), shape=(nodes, nodes))
