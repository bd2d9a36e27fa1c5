"""What a batch hears of its graph when every node hears a few drawn neighbours only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from algorithms.nn import ModelFile
from algorithms.nn._shared.sparse import Sparse, rows
from algorithms.tasks.inputs.egos import Neighbours
from algorithms.tasks.inputs.near import Near, near
from algorithms.tasks.inputs.nodes import NodeData

__all__ = ["heard", "sampled"]

Numbers = npt.NDArray[np.int64]


def heard(
    file: ModelFile, data: NodeData, records: Numbers, *, hops: int, draws: torch.Generator
) -> Near:
    """Return what a model reads of a graph in training: drawn neighbours, or all within its hops.

    Args:
        file: the model's.
        data: the graph.
        records: int64 (n,), nodes.
        hops: layers of the model.
        draws: draws neighbours where the file says `FAN_OUT`.
    """
    if fan_out := getattr(file, "FAN_OUT", 0):
        return sampled(data, records, fan_out=fan_out, hops=hops, draws=draws)
    linear = getattr(file, "LINEAR", False)
    return near(data, records, file.PROPAGATION, hops=hops, linear=linear)


def sampled(
    data: NodeData, records: Numbers, *, fan_out: int, hops: int, draws: torch.Generator
) -> Near:
    """Return the nodes that are drawn within `hops` of some records, and whom each of them hears.

    A node draws once a call and without replacement, and hears the mean of whom it drew; with no
    more than `fan_out` neighbours it hears all. A model of `hops` layers that reads means gives the
    records what it gives them on this part; nodes on the rim hear nobody.

    Args:
        data: the graph.
        records: int64 (n,), the batch.
        fan_out: the most neighbours of a node.
        hops: layers of the model that read neighbours.
        draws: draws neighbours.
    """
    lists = data.kept.get("neighbours")
    if lists is None:
        lists = data.kept["neighbours"] = Neighbours.of(data.edges.numpy(), data.nodes)
    reached = asked = np.unique(records)
    pairs = [np.empty((2, 0), dtype=np.int64)]
    for _ in range(hops):
        pairs.append(_drawn(lists, asked, fan_out, draws))
        asked = np.setdiff1d(pairs[-1][1], reached)
        reached = np.union1d(reached, asked)
    hears, told = np.searchsorted(reached, np.hstack(pairs))
    size = len(reached)
    weight = 1.0 / np.bincount(hears, minlength=size)[hears]
    links = sp.csr_array((weight.astype(np.float32), (hears, told)), shape=(size, size))
    places = torch.from_numpy(np.searchsorted(reached, records))
    return Near(rows(data.x, reached), Sparse.of(links), places)


def _drawn(lists: Neighbours, nodes: Numbers, fan_out: int, draws: torch.Generator) -> Numbers:
    """Return pairs of a node and a neighbour that it drew, int64 (2, m)."""
    first = lists.starts[nodes]
    degree = lists.starts[nodes + 1] - first
    begins = np.cumsum(degree) - degree
    owner = np.repeat(np.arange(len(nodes)), degree)
    listed = lists.listed[np.arange(len(owner)) + (first - begins)[owner]]
    lot = torch.rand(len(owner), generator=draws, dtype=torch.float64).numpy()
    order = np.lexsort((lot, owner))  # owners stay in their order, their neighbours are shuffled
    kept = order[np.arange(len(owner)) - begins[owner] < fan_out]
    return np.stack([nodes[owner[kept]], listed[kept]])
