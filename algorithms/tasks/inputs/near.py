"""What a few nodes of a graph see of it: all that their outputs are computed from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from algorithms.nn._shared.layouts import Weighing
from algorithms.nn._shared.sparse import Features, Propagation, Sparse, rows
from algorithms.tasks.inputs.nodes import NodeData

__all__ = ["Near", "near"]

_MOST = 8
"""How many sets of nodes a site keeps; it trains on two or three."""


class Near(NamedTuple):
    """A part of a graph.

    Attributes:
        x: features of its nodes, (m, F).
        propagation: (m, m), with the whole graph's weights.
        places: int64 (n,), where in it the nodes are that were asked about.
    """

    x: Features
    propagation: Propagation
    places: Tensor


def near(
    data: NodeData,
    records: npt.NDArray[np.int64],
    kind: Weighing,
    *,
    hops: int,
    linear: bool,
) -> Near:
    """Return the nodes within `hops` of some records, made once for each set of them.

    A model of that many layers gives the records the outputs that it gives them on the whole graph:
    weights are the whole graph's, and only nodes on the rim miss neighbours.

    Args:
        data: the graph.
        records: int64 (n,), the nodes that are asked about.
        kind: of the propagation matrix P.
        hops: layers of the model, K.
        linear: the model computes P^K X W + b: then the rows of P^K X are made, for these nodes
            alone (of the whole graph they would be dense), and P is the identity.
    """
    made: dict[bytes, Near] = data.kept.setdefault("near", {})
    key = records.tobytes()
    if key not in made:
        if len(made) >= _MOST:
            made.clear()
        links = _scipy(data.propagation(kind))
        made[key] = (
            _product(data, records, links, hops) if linear else _part(data, records, links, hops)
        )
    return made[key]


def _part(data: NodeData, records: npt.NDArray[np.int64], links: sp.csr_array, hops: int) -> Near:
    reached = np.unique(records)
    for _ in range(hops):
        reached = np.union1d(reached, links[reached].indices)
    inner = sp.csr_array(links[reached][:, reached])
    places = torch.from_numpy(np.searchsorted(reached, records))
    return Near(rows(data.x, reached), Sparse.of(inner), places)


def _product(
    data: NodeData, records: npt.NDArray[np.int64], links: sp.csr_array, hops: int
) -> Near:
    heard = links[records] if hops else sp.csr_array(sp.eye_array(data.nodes))[records]
    for _ in range(hops - 1):
        heard = heard @ links
    places = torch.arange(len(records))
    itself = Sparse.of(sp.csr_array(sp.eye_array(len(records))))
    if isinstance(data.x, Sparse):
        return Near(Sparse.of(sp.csr_array(heard @ _scipy(data.x))), itself, places)
    return Near(torch.tensor(heard @ data.x.numpy(), dtype=torch.float32), itself, places)


def _scipy(sparse: Sparse) -> sp.csr_array:
    """Return a view as a scipy matrix."""
    matrix = sparse.matrix
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    height, width = matrix.shape
    return sp.csr_array(tuple(part.numpy() for part in parts), shape=(height, width))
