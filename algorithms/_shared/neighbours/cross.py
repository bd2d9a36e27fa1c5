"""What a client's own nodes say to another client's fGen: gradients at public codes, in pools.

The codes are no data: m of them are drawn from N(0, I) by a public seed. The client deals its nodes
at random into m pools, one a code, and matches what fGen draws from a code with the nodes of that
code's pool alone. Each code's gradient is clipped, so a node, which is in one pool, moves the
answer by at most 2/m of the largest answer there is; no edge enters it.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from algorithms._shared.neighbours.generator import Slopes, draw, inputs, nearest, slopes
from algorithms._shared.neighbours.sizes import Sizes
from algorithms.nn._shared.sparse import Sparse, rows
from algorithms.tasks import Weights
from algorithms.tasks.inputs.nodes import NodeData

__all__ = ["answered", "at_codes", "dealt", "dense", "entered", "moved"]


def answered(
    data: NodeData,
    sizes: Sizes,
    weights: Weights,
    place: tuple[int, ...],
    rng: np.random.Generator,
    *,
    codes: int,
    clip: float,
) -> NDArray[np.float64]:
    """Return the sum over all codes of their clipped gradients, in units of `codes` x `clip`, (g,).

    Its length is at most 1.

    Args:
        data: the client's graph; features of its own nodes alone are read.
        sizes: fGen's.
        weights: another client's fGen, (g,).
        place: whole numbers that the codes are drawn from: public.
        rng: deals nodes into pools.
        codes: m.
        clip: largest length of one code's gradient.
    """
    own, pool = dealt(data, rng, codes)
    allowed = torch.from_numpy(pool[None, :] == np.arange(codes)[:, None])
    slope = at_codes(sizes, torch.from_numpy(weights), place, dense(data, own), allowed)
    scales = clip / slope.norms().clamp_min(clip) / (codes * clip)
    total: NDArray[np.float64] = slope.total(scales).numpy().astype(np.float64)
    return total


def dense(data: NodeData, nodes: NDArray[np.int64]) -> Tensor:
    """Return some nodes' features, (n, F)."""
    found = rows(data.x, nodes)
    return found.matrix.to_dense() if isinstance(found, Sparse) else found


def at_codes(
    sizes: Sizes, weights: Tensor, place: tuple[int, ...], held: Tensor, allowed: Tensor
) -> Slopes:
    """Return the gradients at the public codes of a place, of those codes that have candidates.

    Args:
        sizes: fGen's.
        weights: fGen's, (g,).
        place: see `answered`.
        held: features of candidates, (n, F).
        allowed: bool (m, n), which of them a code is held against.
    """
    some = allowed.any(dim=1)
    drawn = draw(sizes, weights, entered(sizes, place, len(allowed))[some])
    return slopes(sizes, weights, drawn, nearest(drawn.rows, held, allowed[some]))


def entered(sizes: Sizes, place: tuple[int, ...], codes: int) -> Tensor:
    """Return the public codes of a place with their noise, (m, p, c): no data is in them."""
    words = np.random.SeedSequence(place).generate_state(1, np.uint64)
    public = torch.Generator().manual_seed(int(words[0] >> np.uint64(1)))
    return inputs(torch.randn((codes, sizes.latent), generator=public), sizes.draws, public)


def dealt(
    data: NodeData, rng: np.random.Generator, codes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a client's own nodes, (n,), and the pool that each is dealt into."""
    own = np.flatnonzero(~data.common.numpy())
    return own, rng.integers(codes, size=len(own))


def moved(weights: Weights, total: NDArray[np.float64], answers: int, step: float) -> Weights:
    """Return fGen after a step along the others' mean, (g,).

    Args:
        weights: before it.
        total: of the others' answers, (g,).
        answers: how many they are.
        step: length of the step for the largest mean there is.
    """
    found: Weights = (weights - step / answers * total).astype(np.float32)
    return found
