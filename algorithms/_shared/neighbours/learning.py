"""A client learns its own NeighGen, alone, and adds what it guesses to its graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from algorithms._shared.neighbours import counting
from algorithms._shared.neighbours.codes import encoded
from algorithms._shared.neighbours.generator import Slopes, draw, inputs, nearest, slopes
from algorithms._shared.neighbours.graphs import Examples, impaired, mended
from algorithms._shared.neighbours.sizes import Learning, Sizes
from algorithms.tasks import Weights
from algorithms.tasks._optimisers import Stepper
from algorithms.tasks.inputs.nodes import NodeData

__all__ = ["NeighGen", "learnt", "record_slopes", "with_neighbours"]


class NeighGen(NamedTuple):
    """Attributes: counting, dGen's values, (c + 1,); features, fGen's, (P,). float32 both."""

    counting: Weights
    features: Weights


def learnt(
    data: NodeData,
    sizes: Sizes,
    begun: Weights,
    seed: int,
    rng: np.random.Generator,
    how: Learning,
) -> NeighGen:
    """Return a client's NeighGen after training on its own graph alone.

    Args:
        data: the client's graph.
        sizes: fGen's.
        begun: what fGen starts from, (P,).
        seed: public; of the encoder.
        rng: hides nodes, draws batches and codes' noise.
        how: steps and sizes.

    Raises:
        FloatingPointError: training diverged to NaN or infinity.
    """
    hidings = [
        impaired(data, sizes, seed, rng, share=how.share)
        for _ in range(min(how.hidings, how.steps))
    ]
    counted = counting.fit_counting(
        torch.cat([one.codes for one in hidings]),
        torch.cat([one.missing for one in hidings]),
        steps=how.steps,
        lr=how.lr,
    )
    missing = [found for one in hidings if len((found := one.with_missing()).codes)]
    weights = torch.nn.Parameter(torch.tensor(begun))
    stepper = Stepper("adam", [weights], how.lr, 0.0)
    noise = torch.Generator().manual_seed(int(rng.integers(2**63)))
    for step in range(how.steps if missing else 0):
        examples = missing[step % len(missing)]
        batch = rng.permutation(len(examples.codes))[: how.batch]
        slope = record_slopes(sizes, weights.detach(), examples, torch.from_numpy(batch), noise)
        weights.grad = slope.total(torch.full((len(batch),), 1.0 / len(batch)))
        stepper.step()
    made = NeighGen(counted.numpy(), weights.detach().numpy())
    if not all(np.isfinite(part).all() for part in made):
        raise FloatingPointError(
            "NeighGen's training diverged, most likely because features are very large; scale them"
        )
    return made


def record_slopes(
    sizes: Sizes, weights: Tensor, examples: Examples, batch: Tensor, noise: torch.Generator
) -> Slopes:
    """Return each record's loss and gradient, of examples that miss somebody.

    Args:
        sizes: fGen's.
        weights: fGen's.
        examples: see `Examples.with_missing`.
        batch: int64, which of them.
        noise: draws e.
    """
    drawn = draw(sizes, weights, inputs(examples.codes[batch], sizes.draws, noise))
    wanted = nearest(drawn.rows, examples.hidden, examples.links[batch])
    return slopes(sizes, weights, drawn, wanted)


def with_neighbours(data: NodeData, sizes: Sizes, by: NeighGen, seed: int) -> NodeData:
    """Return a client's graph with the neighbours that its NeighGen guesses; see `mended`.

    The same values give the same graph: noise of the codes comes from the public seed.
    """
    codes = encoded(data.x, data.edges, sizes, seed)
    counts = counting.counted(torch.tensor(by.counting), codes, sizes.draws)
    counts[data.common] = 0
    wanted = torch.repeat_interleave(codes, counts, dim=0)
    entered = inputs(wanted, 1, torch.Generator().manual_seed(seed))
    rows = draw(sizes, torch.tensor(by.features), entered).rows[:, 0]
    return mended(data, counts, rows)
