"""All clients hold the whole graph, and each of them a few labels of it.

The setting of GraphFL (Wang et al., ICDM 2022, section 5.1.3): 80 nodes of each class, in random
order, are dealt to 50 clients, 9 to 13 each on Cora and CiteSeer; 1,000 other nodes are the test.
A client does not know the labels that others train on. The source document picks on test nodes or,
for the methods that it compares with, on half of the training labels; here `val_nodes` further
nodes validate. All clients hold all validation and test nodes, so that a local model is scored on
the same nodes as a shared one.

**The graph is not private here**: every client has all nodes, edges and features. What a client
keeps for itself are its labels. The source document takes largest components; this rule takes the
data set as it is.
"""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions._shared import Cut, drawn_roles, known
from secure_fgl.data.records import Graph, Masks

__all__ = ["KINDS", "OWN_SPLIT", "cut"]

KINDS = ("node",)

OWN_SPLIT = True
"""So many labels a class belong to the rule."""

SHARED_GRAPH = True
"""Every client has the whole graph."""


def cut(
    graph: Graph,
    masks: Masks,
    clients: int,
    rng: np.random.Generator,
    *,
    per_class: int = 80,
    val_nodes: int = 500,
    test_nodes: int = 1000,
) -> list[Cut]:
    """One cut a client, each with all nodes; the rule draws its own roles.

    Args:
        graph: the whole graph.
        masks: unused.
        clients: 50 in GraphFL.
        rng: everything that is drawn.
        per_class: training nodes of each class, of all clients together.
        val_nodes: validation nodes, the same at all clients.
        test_nodes: test nodes, the same at all clients.

    Raises:
        ValueError: the graph has too few labelled nodes, or a client would have no training node.
    """
    roles = drawn_roles(graph, rng, per_class, val_nodes, test_nodes)
    if len(roles.train) < clients:
        raise ValueError(
            f"{len(roles.train)} training nodes are too few for {clients} clients: raise per_class "
            "or ask for fewer clients"
        )
    members = np.arange(graph.nodes)
    cuts = []
    for client in range(clients):
        train, val, test = np.sort(roles.train[client::clients]), roles.val, roles.test
        labels = known(graph, members, train, val, test)
        cuts.append(Cut(members, train, val, test, labels=labels))
    return cuts
