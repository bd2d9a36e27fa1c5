"""Every client samples mostly from three classes of its own; clients overlap.

The partition of FedEgo (Zhang et al., FedEgo: Privacy-preserving Personalized Federated Graph
Learning with Ego-graphs, 2022, section 5.1), after the authors' program. N counts the labelled
nodes that have a neighbour. alpha_global N random nodes are the global test: no client's own, and
given to all as a graph apart on which models are scored and never trained. Then each
client in turn picks `major` classes and takes floor(alpha_local N) nodes from the pool, the share
`rate` of them from those classes as far as they last, the rest uniformly; only nodes with a
neighbour in the sample stay.

As published (`strict=False`), a client's last `test_nodes` nodes, shuffled, are its local test, and
leave the pool of *later* clients only. Earlier clients go on training on them: on Cora with five
clients 31 % of the local test nodes train at another client for alpha_local 0.3, and 62 % for 0.5
(none of the first client's, nearly all of the last's). Accuracy so measured is too high.

`strict`, the default, draws roles over the whole pool first, stratified: nobody's test node trains
anywhere, a node has one role at all clients that hold it, and shares are such that a client has
about `test_nodes` test nodes before those without a neighbour go.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from secure_fgl.data.partitions._shared import Cut, Records
from secure_fgl.data.records import Graph, Masks, deal

__all__ = ["KINDS", "OWN_SPLIT", "cut"]

KINDS = ("node",)

OWN_SPLIT = True
"""Local tests belong to the rule."""

COMMON_TEST = True
"""The global test."""

VALIDATION = 5
"""One node in so many validates (FedEgo, section 5.1: 20 %)."""


def cut(  # noqa: PLR0913 - the paper's six settings, all by name
    graph: Graph,
    masks: Masks,
    clients: int,
    rng: np.random.Generator,
    *,
    alpha_local: float = 0.3,
    alpha_global: float = 0.3,
    major: int = 3,
    rate: float = 0.8,
    test_nodes: int = 200,
    strict: bool = True,
    linked: bool = False,
) -> list[Cut]:
    """One cut a client, overlapping; the rule draws its own roles.

    Args:
        graph: the whole graph.
        masks: unused.
        clients: K; 5 in FedEgo on Cora and CiteSeer.
        rng: everything that is drawn.
        alpha_local: share of the nodes that a client samples. FedEgo's table says 0.3 (Wiki 0.2),
            its program 0.5 on Cora and CiteSeer.
        alpha_global: share of the nodes in the global test; 0.3 in FedEgo.
        major: classes a client prefers; 3 in FedEgo.
        rate: share of its sample from those; 0.8 in FedEgo.
        test_nodes: local test nodes of a client. FedEgo's program takes 200 on Cora and CiteSeer
            and 300 elsewhere, its text says 300.
        strict: no test node trains anywhere.
        linked: every client also knows its nodes' edges to nodes that others hold and it does not
            (`secure_fgl.data.sharing` adds them), as FedGCN needs; never to the global test.

    Raises:
        ValueError: an option is out of range, or the graph is too small for it.
    """
    _check(graph, alpha_local, alpha_global, major, rate, test_nodes)
    degree = np.bincount(graph.edges.ravel(), minlength=graph.nodes)
    known = np.flatnonzero((degree > 0) & (graph.y >= 0))
    wanted = int(alpha_local * len(known))
    apart, pool = np.split(rng.permutation(known), [int(alpha_global * len(known))])
    common, pool = np.sort(apart), np.sort(pool)

    def sample(pool: Records) -> Records:
        return _sample(graph, pool, wanted, major, rate, rng)

    if not strict:
        return [
            cut._replace(common=common)
            for cut in _published(pool, clients, rng, test_nodes, sample)
        ]
    test_share = test_nodes / max(1, wanted)
    if test_share + 1 / VALIDATION >= 1.0:
        raise _too_small(test_nodes)
    shares = (1.0 - 1 / VALIDATION - test_share, 1 / VALIDATION, test_share)
    roles = deal(pool, graph.y, shares, rng)
    cuts = []
    for members in (sample(pool) for _ in range(clients)):
        cuts.append(Cut(members, *(np.intersect1d(members, role) for role in roles)))
        if not len(cuts[-1].train) or not len(cuts[-1].test):
            raise _too_small(test_nodes)
    return [cut._replace(common=common) for cut in cuts]


def _check(
    graph: Graph,
    alpha_local: float,
    alpha_global: float,
    major: int,
    rate: float,
    test_nodes: int,
) -> None:
    if not (0.0 < alpha_local <= 1.0 and 0.0 <= alpha_global < 1.0 and 0.0 <= rate <= 1.0):
        raise ValueError("alpha_local must be in (0, 1], alpha_global in [0, 1) and rate in [0, 1]")
    if not 1 <= major <= graph.classes or test_nodes < 1:
        raise ValueError(
            f"major must be 1 to {graph.classes}, the classes of {graph.name!r}, and test_nodes 1 "
            "or more"
        )


def _published(
    pool: Records,
    clients: int,
    rng: np.random.Generator,
    test_nodes: int,
    sample: Callable[[Records], Records],
) -> list[Cut]:
    """Cuts whose test nodes leave the pool of later clients only."""
    cuts = []
    for _ in range(clients):
        members = sample(pool)
        val_nodes = len(members) // VALIDATION
        if len(members) <= test_nodes + val_nodes:
            raise _too_small(test_nodes)
        order = rng.permutation(members)
        val, train, test = np.split(order, [val_nodes, len(order) - test_nodes])
        cuts.append(Cut(members, np.sort(train), np.sort(val), np.sort(test)))
        pool = np.setdiff1d(pool, test)
    return cuts


def _sample(
    graph: Graph,
    pool: Records,
    wanted: int,
    major: int,
    rate: float,
    rng: np.random.Generator,
) -> Records:
    """Of `wanted` nodes of the pool those with a neighbour among them, ascending."""
    classes = rng.permutation(graph.classes)[:major]
    preferred = rng.permutation(pool[np.isin(graph.y[pool], classes)])[: int(wanted * rate)]
    others = rng.permutation(np.setdiff1d(pool, preferred))[: wanted - len(preferred)]
    held = np.zeros(graph.nodes, dtype=bool)
    held[preferred] = held[others] = True
    return np.unique(graph.edges[:, held[graph.edges].all(axis=0)])


def _too_small(test_nodes: int) -> ValueError:
    return ValueError(
        f"a client's sample is too small for {test_nodes} test nodes beside its training and "
        "validation: lower test_nodes or alpha_global, raise alpha_local, or ask for fewer clients"
    )
