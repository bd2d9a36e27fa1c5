"""What the rules with few labels share: drawing roles over the whole graph, and hiding the rest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from secure_fgl.data.partitions._shared.rule import Records
from secure_fgl.data.records import Graph

__all__ = ["Roles", "drawn", "known"]


class Roles(NamedTuple):
    """Nodes by role, int64, apart; `train` in random order, the others ascending."""

    train: Records
    val: Records
    test: Records


def drawn(
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
