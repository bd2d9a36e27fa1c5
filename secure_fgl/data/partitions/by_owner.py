"""Natural owners: every record stays with the institution that holds it in the data set."""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions._shared import Records, as_many
from secure_fgl.data.records import Graph, GraphSet

__all__ = ["EVEN", "KINDS", "assign"]

EVEN = True
KINDS = ("node", "graph")


def assign(whole: Graph | GraphSet, clients: int, rng: np.random.Generator) -> Records:
    """The data set's own owners, int64 (records,); nothing is drawn from `rng`.

    Raises:
        ValueError: the data set has no natural owners, or not as many as clients.
    """
    if whole.owner is None:
        raise ValueError(
            f"the data set {whole.name!r} has no natural owners; choose another partition, for "
            "example louvain_balanced (nodes) or dirichlet_count (graphs)"
        )
    as_many(whole.name, int(whole.owner.max(initial=-1)) + 1, "natural owners", clients)
    return whole.owner.copy()
