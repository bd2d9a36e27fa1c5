"""METIS parts, one a client: few edges are lost and every node has one owner.

The disjoint setting of FED-PUB (Baek et al., Personalized Subgraph Federated Learning, ICML 2023),
there with 5, 10 and 20 clients on the largest connected component. With the option `linked`
clients know the numbers of other clients' nodes that their own have edges to.
"""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions._shared import Records, parts
from secure_fgl.data.records import Graph

__all__ = ["EVEN", "KINDS", "LINKABLE", "assign"]

EVEN = True
KINDS = ("node",)
LINKABLE = True


def assign(graph: Graph, clients: int, rng: np.random.Generator) -> Records:
    """The METIS part of every node, int64 (N,); deterministic in `rng`.

    Raises:
        ImportError: pymetis is not installed.
        ValueError: the graph is too small for so many clients.
    """
    return parts(graph, clients, rng)
