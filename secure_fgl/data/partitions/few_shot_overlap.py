"""Each client holds a window of the graph's nodes, and few labels; neighbouring windows overlap.

GraphFL's experiment on partial graphs (Wang et al., ICDM 2022, section 5.2.3): nodes in the order
of the data set are dealt in windows of N / (K - (K - 1) γ) nodes, so that two clients with
neighbouring numbers share a fraction γ of theirs. A client has the edges among its nodes. Roles are
drawn over the whole graph as in `few_shot_shared_graph`; a training label that several windows hold
goes to one of their clients, drawn at random, so nobody trains on another's label.
"""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions._shared import Cut, Records, drawn_roles, known
from secure_fgl.data.records import Graph, Masks

__all__ = ["KINDS", "OWN_SPLIT", "cut"]

KINDS = ("node",)

OWN_SPLIT = True
"""So many labels a class belong to the rule."""


def cut(
    graph: Graph,
    masks: Masks,
    clients: int,
    rng: np.random.Generator,
    *,
    overlap: float = 0.5,
    per_class: int = 80,
    val_nodes: int = 500,
    test_nodes: int = 1000,
) -> list[Cut]:
    """One cut a client; the rule draws its own roles.

    Args:
        graph: the whole graph.
        masks: unused.
        clients: K.
        rng: everything that is drawn.
        overlap: γ, in [0, 1).
        per_class: training nodes of each class, of all clients together.
        val_nodes: validation nodes; a client has those in its window.
        test_nodes: test nodes, likewise.

    Raises:
        ValueError: an option is out of range, the graph has too few labelled nodes, or a client
            would have no training node.
    """
    if not 0.0 <= overlap < 1.0:
        raise ValueError("overlap must be in [0, 1); for whole graphs take few_shot_shared_graph")
    roles = drawn_roles(graph, rng, per_class, val_nodes, test_nodes)
    windows = _windows(graph.nodes, clients, overlap)
    holder = np.zeros(len(roles.train), dtype=np.int64)
    for place, node in enumerate(roles.train):
        holders = [n for n, one in enumerate(windows) if one[0] <= node <= one[-1]]
        holder[place] = holders[rng.integers(len(holders))]
    cuts = []
    for client, members in enumerate(windows):
        train = np.sort(roles.train[holder == client])
        val, test = (np.intersect1d(members, role) for role in roles[1:])
        if not len(train):
            raise ValueError(
                f"{clients} clients are too many: a window of {len(members)} nodes holds no "
                "training node; raise per_class or overlap, or ask for fewer clients"
            )
        labels = known(graph, members, train, val, test)
        cuts.append(Cut(members, train, val, test, labels=labels))
    return cuts


def _windows(nodes: int, clients: int, overlap: float) -> list[Records]:
    """Return each client's nodes, ascending; together they are all nodes."""
    wide = nodes / (clients - (clients - 1) * overlap)
    stride = (1.0 - overlap) * wide
    starts = [round(client * stride) for client in range(clients)]
    ends = [min(nodes, round(client * stride + wide)) for client in range(clients)]
    ends[-1] = nodes
    return [np.arange(start, end) for start, end in zip(starts, ends, strict=True)]
