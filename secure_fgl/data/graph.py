"""Two records: a whole data set, and the part of it that one client holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = ["ClientGraph", "Features", "Graph", "Masks"]

Features = npt.NDArray[np.float32] | sp.csr_array
"""One row a node, shape (N, F), float32."""


class Masks(NamedTuple):
    """Training, validation and test nodes of a graph, each bool (N,), disjoint."""

    train: npt.NDArray[np.bool_]
    val: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]


@dataclass(frozen=True, repr=False, eq=False)
class Graph:
    """A node-classification data set before it is shared out. Its representation is mute.

    Attributes:
        name: catalogue name.
        edges: int64 (2, M), each undirected pair once with u < v, no self-loops.
        x: features (N, F), dense or CSR.
        y: int64 (N,), -1 for no label.
        classes: number of classes.
        synthetic: whether it was generated.
        owner: int64 (N,), the natural owner of every node (which bank, which country), or None.
    """

    name: str
    edges: npt.NDArray[np.int64]
    x: Features
    y: npt.NDArray[np.int64]
    classes: int
    synthetic: bool
    owner: npt.NDArray[np.int64] | None = None

    @property
    def nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.y)

    def __repr__(self) -> str:
        return f"<Graph {self.name}>"


@dataclass(frozen=True, repr=False, eq=False)
class ClientGraph:
    """The subgraph that one client holds; edges that cross to another client are in nobody's.

    Attributes:
        edges: int64 (2, m), local node numbers, each undirected pair once with u < v.
        x: features (n, F), dense or CSR.
        y: int64 (n,), -1 for no label.
        train, val, test: bool (n,), disjoint.
        nodes: int64 (n,), each node's number in the whole graph, ascending. It exists so that
            simulations can compare with the truth; a real client does not know it.
    """

    edges: npt.NDArray[np.int64]
    x: Features
    y: npt.NDArray[np.int64]
    train: npt.NDArray[np.bool_]
    val: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]
    nodes: npt.NDArray[np.int64]

    def __repr__(self) -> str:
        return "<ClientGraph>"
