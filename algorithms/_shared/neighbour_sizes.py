"""How large fGen is, what it starts from and how it is learnt; a plan reads this, without torch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from algorithms.tasks import Weights

__all__ = ["Learning", "Sizes"]


class Sizes(NamedTuple):
    """Widths of fGen, x~ = tanh(ReLU((z + e) W_1 + b_1) W_2 + b_2).

    There is one output head, and a node's missing neighbours are drawn from it one by one, each
    with a fresh e ~ N(0, I). The published head has p F outputs behind 2,048 hidden units, 15
    million values on Cora; this one has 65 F + 16,448, so at most 100 F from 470 features on.

    Attributes:
        features: F.
        latent: entries of a code z, c.
        hidden: hidden units.
        draws: p, the most neighbours that a node is thought to miss.
    """

    features: int
    latent: int = 256
    hidden: int = 64
    draws: int = 5

    @property
    def size(self) -> int:
        """Number of fGen's values."""
        return (self.latent + 1) * self.hidden + (self.hidden + 1) * self.features

    def initial(self, rng: np.random.Generator) -> Weights:
        """Return W_1, b_1, W_2, b_2 as one vector: Glorot-uniform matrices, zero biases."""
        parts = []
        for wide, out in ((self.latent, self.hidden), (self.hidden, self.features)):
            bound = np.sqrt(6.0 / (wide + out))
            parts += [rng.uniform(-bound, bound, size=wide * out), np.zeros(out)]
        return np.concatenate(parts).astype(np.float32)


class Learning(NamedTuple):
    """How NeighGen is learnt.

    Attributes:
        share: of the client's nodes that are hidden.
        hidings: how many times others are hidden; one alone is learnt by heart.
        steps: Adam's steps, of dGen on all examples and of fGen on a batch each; more of them fit
            the hidden nodes better and those that are really missing worse.
        batch: nodes in a batch.
        lr: Adam's step size.
    """

    share: float = 0.15
    hidings: int = 20
    steps: int = 100
    batch: int = 64
    lr: float = 0.005
