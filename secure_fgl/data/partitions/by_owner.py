"""Natural owners: every node stays with the institution that holds it in the data set."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secure_fgl.data.graph import Graph

__all__ = ["assign"]


def assign(graph: Graph, clients: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """The data set's own owners, int64 (N,); nothing is drawn from `rng`.

    Raises:
        ValueError: the data set has no natural owners, or not as many as clients.
    """
    if graph.owner is None:
        raise ValueError(
            f"the data set {graph.name!r} has no natural owners; choose another partition, for "
            "example louvain_balanced"
        )
    owners = int(graph.owner.max()) + 1
    if owners != clients:
        raise ValueError(
            f"the data set {graph.name!r} has {owners} natural owners and {clients} clients were "
            "asked for; make the two numbers equal"
        )
    return graph.owner.copy()
