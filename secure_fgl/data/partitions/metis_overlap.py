"""METIS parts, each shared by several clients that hold a random half of it each.

The overlapping setting of FED-PUB (Baek et al., Personalized Subgraph Federated Learning, ICML
2023), after the authors' program: METIS into 2, 6 or 10 parts, five clients a part (10, 30 or 50
clients), each an independent random half of the part's nodes with the edges among them. Roles are
drawn over the whole graph before, so a node that several clients hold has one role everywhere.

With the option `linked` each node belongs to one of the clients that hold it, and clients know by
number the edges between their own nodes and another client's that neither of the two holds of the
other; so nobody is told of nodes that it has a copy of.
"""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions._shared import Cut, groups, parts, with_roles
from secure_fgl.data.records import Graph, Masks

__all__ = ["KINDS", "LINKABLE", "cut"]

KINDS = ("node",)
LINKABLE = True


def cut(
    graph: Graph, masks: Masks, clients: int, rng: np.random.Generator, *, per_part: int = 5
) -> list[Cut]:
    """One cut a client; clients 0 to per_part - 1 share the first part, and so on.

    Args:
        graph: the whole graph; only edges are used.
        masks: roles of the whole graph's nodes.
        clients: a multiple of `per_part`.
        rng: METIS' seed and the halves.
        per_part: clients that share a part; 5 in FED-PUB.

    Raises:
        ImportError: pymetis is not installed.
        ValueError: clients is not a multiple of per_part, or a client would have no training node.
    """
    if per_part < 1 or clients % per_part:
        raise ValueError(
            f"metis_overlap gives every part to {per_part} clients, so clients must be a multiple "
            f"of per_part (1 or more); {clients} is not"
        )
    count = clients // per_part
    cuts = with_roles(
        [
            np.sort(rng.choice(nodes, size=len(nodes) // 2, replace=False))
            for nodes in groups(parts(graph, count, rng), count)
            for _ in range(per_part)
        ],
        masks,
    )
    if not all(len(one.train) for one in cuts):
        raise ValueError(
            f"{clients} clients are too many for {graph.nodes} nodes: one of them would have no "
            "training node; ask for fewer clients or a larger training share"
        )
    return cuts
