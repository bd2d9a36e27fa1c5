"""What a client's graph is made into: one with nodes hidden, and one with nodes added."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from algorithms._shared.neighbours.codes import encoded
from algorithms._shared.neighbours.sizes import Sizes
from algorithms.nn._shared.sparse import Features, Sparse, rows
from algorithms.tasks.inputs.nodes import NodeData

__all__ = ["Examples", "impaired", "mended"]


class Examples(NamedTuple):
    """The nodes left visible, with what they miss.

    Attributes:
        codes: of the visible nodes in the impaired graph, (B, c).
        missing: how many hidden neighbours each has, float32 (B,).
        hidden: features of the hidden nodes, (n, F).
        links: bool (B, n), who is whose neighbour.
    """

    codes: Tensor
    missing: Tensor
    hidden: Tensor
    links: Tensor

    def with_missing(self) -> Examples:
        """Return the examples of nodes that miss somebody; only these train fGen."""
        some = self.missing > 0
        return Examples(self.codes[some], self.missing[some], self.hidden, self.links[some])


def impaired(
    data: NodeData, sizes: Sizes, seed: int, rng: np.random.Generator, *, share: float
) -> Examples:
    """Hide a share of a client's nodes with their edges, and return what the others then miss.

    Features and edges of any of the client's own nodes are read, held-out ones too; labels are not.
    A test graph that all clients were given is left out.

    Args:
        data: the client's graph.
        sizes: of the codes.
        seed: public; of the encoder.
        rng: draws who is hidden.
        share: of the nodes, in (0, 1); one node at least stays visible.
    """
    own = np.flatnonzero(~data.common.numpy())
    count = min(max(round(share * len(own)), 1), len(own) - 1)
    hidden = np.sort(rng.permutation(own)[:count])
    visible = np.setdiff1d(own, hidden)
    place = np.full(data.nodes, -1)
    place[visible], is_hidden = np.arange(len(visible)), np.zeros(data.nodes, dtype=bool)
    is_hidden[hidden] = True
    edges = data.edges.numpy()
    kept = edges[:, (place[edges] >= 0).all(axis=0)]
    cut = np.hstack([edges, edges[::-1]])
    cut = cut[:, (place[cut[0]] >= 0) & is_hidden[cut[1]]]
    links = np.zeros((len(visible), len(hidden)), dtype=bool)
    links[place[cut[0]], np.searchsorted(hidden, cut[1])] = True
    codes = encoded(rows(data.x, visible), torch.from_numpy(place[kept]), sizes, seed)
    return Examples(
        codes,
        torch.from_numpy(links.sum(axis=1).astype(np.float32)),
        _dense(rows(data.x, hidden)),
        torch.from_numpy(links),
    )


def mended(data: NodeData, counts: Tensor, features: Tensor) -> NodeData:
    """Return the graph with new nodes added, behind all others; they have no label and no role.

    Args:
        data: the client's graph; returned as it is where nothing is added.
        counts: how many new neighbours each node gets, int64 (N,).
        features: of the new ones, (sum of counts, F), node after node.

    Raises:
        ValueError: counts and features disagree.
    """
    added = int(counts.sum())
    if counts.shape != (data.nodes,) or features.shape != (added, data.features):
        raise ValueError(
            "counts must say of every node how many neighbours it gets, and there is one row of "
            "features for each new one"
        )
    if not added:
        return data
    parents = torch.repeat_interleave(torch.arange(data.nodes), counts)
    edges = torch.stack([parents, data.nodes + torch.arange(added)])
    no = torch.zeros(added, dtype=torch.bool)
    return replace(
        data,
        edges=torch.cat([data.edges, edges], dim=1),
        x=_below(data.x, features),
        y=torch.cat([data.y, torch.full((added,), -1)]),
        train=torch.cat([data.train, no]),
        val=torch.cat([data.val, no]),
        test=torch.cat([data.test, no]),
        tune=torch.cat([data.tune, no]),
        common=torch.cat([data.common, no]),
        kept={},
        _propagation={},
    )


def _dense(x: Features) -> Tensor:
    return x.matrix.to_dense() if isinstance(x, Sparse) else x


def _below(x: Features, more: Tensor) -> Features:
    if not isinstance(x, Sparse):
        return torch.cat([x, more])
    parts = (x.matrix.values(), x.matrix.col_indices(), x.matrix.crow_indices())
    nodes, wide = x.matrix.shape
    known = sp.csr_array(tuple(part.numpy() for part in parts), shape=(nodes, wide))
    return Sparse.of(sp.csr_array(sp.vstack([known, sp.csr_array(more.numpy())])))
