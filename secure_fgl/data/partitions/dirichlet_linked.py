"""As `dirichlet_label`, and every client knows where its nodes' edges to other clients end.

FedGCN's setting (Yao et al., NeurIPS 2023): an edge between two clients is known at both ends, as a
node of one's own and the other end's number in the whole graph. Of the other end a client holds
neither features nor label. Numbers of nodes are public names here; a site with names of its own has
to agree on them first.
"""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions import dirichlet_label
from secure_fgl.data.partitions._shared import Records
from secure_fgl.data.records import Graph

__all__ = ["KINDS", "LINKED", "assign"]

KINDS = ("node",)
LINKED = True


def assign(
    whole: Graph,
    clients: int,
    rng: np.random.Generator,
    *,
    beta: float = 1.0,
    least: int = 10,
) -> Records:
    """Owner of every node, int64 (nodes,); see `dirichlet_label.assign`."""
    return dirichlet_label.assign(whole, clients, rng, beta=beta, least=least)
