"""The mean over what one user rated: FedPerGNN's GCN, see `algorithms.nn._shared.stars`.

layer = mean_k s_k (<V q_k, q_j> + g),   k rated by u and k ≠ j.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from algorithms.nn._shared.rating_layouts import Inputs
from algorithms.nn._shared.ratings import RatingModel
from algorithms.nn._shared.stars import Layer, Star, masked_mean
from algorithms.tasks import Weights


class Average(Layer):
    """Parameters W, V (h, h) and g."""

    def __init__(self, hidden: int) -> None:
        super().__init__(hidden)
        self.value = torch.nn.Parameter(torch.empty(hidden, hidden))
        self.plain = torch.nn.Parameter(torch.empty(1))

    def forward(
        self, query: Tensor, user: Tensor, item: Tensor, residual: Tensor, seen: Tensor
    ) -> Tensor:
        """Return the mean residuals, (m,); `user` is not read."""
        said = torch.cat([item @ self.value, torch.ones_like(residual)[:, None]], dim=1)
        mean = masked_mean(residual[:, None] * said, seen)
        return (mean[:, :-1] * query).sum(dim=1) + self.plain * mean[:, -1]

    def start(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Weights:
        """g zero, the rest as every layer's."""
        if name == "plain":
            return np.zeros(shape, dtype=np.float32)
        return super().start(name, shape, rng)


def build(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> RatingModel:
    """A star of width `hidden`, uninitialised; `users`, `layers` and `inputs` are unused."""
    return Star(items, hidden, Average(hidden), dropout)
