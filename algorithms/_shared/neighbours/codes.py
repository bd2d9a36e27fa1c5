"""Codes of nodes, from a fixed encoder: random projections of means over two hops.

The encoder is not trained: its matrices are drawn from a public seed, so that nothing about
anybody's nodes lies in them. A node's code joins its own features, the mean of its neighbours', and
the mean of their means, each projected by a matrix of its own and brought to one length; z has the
length sqrt(c) that a code drawn from N(0, I) has about.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from algorithms._shared.neighbours.sizes import Sizes
from algorithms.nn._shared.sparse import Features, product, propagation

__all__ = ["encoded"]

_SMALL = 1e-12


def encoded(x: Features, edges: Tensor, sizes: Sizes, seed: int) -> Tensor:
    """Return the codes of all nodes of a graph, float32 (N, c); zero where there is no feature.

    Args:
        x: features (N, F).
        edges: int64 (2, M), each undirected pair once.
        sizes: of the codes.
        seed: public; of the encoder's matrices.
    """
    nodes = (x if isinstance(x, Tensor) else x.matrix).shape[0]
    near = propagation(edges, nodes, "mean")
    rng = np.random.default_rng(seed)
    joined = torch.zeros(nodes, sizes.latent)
    for hops in range(3):
        drawn = rng.standard_normal((sizes.features, sizes.latent)).astype(np.float32)
        part = product(x, torch.from_numpy(drawn))
        for _ in range(hops):
            part = product(near, part)
        joined += _scaled(part)
    return _scaled(joined) * float(np.sqrt(sizes.latent))


def _scaled(rows: Tensor) -> Tensor:
    """Return rows of length 1, and zeros where they are zero."""
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / lengths.clamp_min(_SMALL)
