"""How large fGen is, and what it starts from; a plan reads this, so no torch is loaded here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from algorithms.tasks import Weights

__all__ = ["Sizes"]


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
