"""Nodes dealt at random, equally many to each client: the same distribution everywhere.

The limit of `dirichlet_label` for a large beta. Nearly all edges cross clients and are lost, so it
shows what a rule without communities costs (FedGCN's 0-hop rows; Yao et al., NeurIPS 2023).
"""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions._shared import Records
from secure_fgl.data.records import Graph

__all__ = ["EVEN", "KINDS", "assign"]

EVEN = True
KINDS = ("node",)


def assign(graph: Graph, clients: int, rng: np.random.Generator) -> Records:
    """Owner of every node, int64 (N,); sizes differ by one at most.

    Raises:
        ValueError: there are fewer nodes than clients.
    """
    if graph.nodes < clients:
        raise ValueError(
            f"{graph.nodes} nodes cannot be dealt to {clients} clients; ask for fewer clients"
        )
    return rng.permutation(np.arange(graph.nodes) % clients)
