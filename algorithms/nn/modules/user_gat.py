"""Attention over what one user rated: FedPerGNN's GAT, see `algorithms.nn._shared.stars`.

    a_jk = softmax_k(<A q_j, B q_k> / √h),   k rated by u and k ≠ j,
    layer = n / (n + 1) Σ_k a_jk s_k (<V q_k, q_j> + g),

with n the number of ratings that the answer may rest on: what one other rating says counts half.
The scores are those of scaled dot-product attention (Vaswani et al., NeurIPS 2017, eq. 1) in place
of the single-layer network of GAT (Veličković et al., ICLR 2018, eq. 3).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from algorithms.nn._shared.rating_layouts import Inputs
from algorithms.nn._shared.ratings import RatingModel
from algorithms.nn._shared.stars import Layer, Star, masked_softmax
from algorithms.tasks import Weights


class Attention(Layer):
    """Parameters W, A, B, V (h, h) and g."""

    def __init__(self, hidden: int) -> None:
        super().__init__(hidden)
        self.asking = torch.nn.Parameter(torch.empty(hidden, hidden))
        self.asked = torch.nn.Parameter(torch.empty(hidden, hidden))
        self.value = torch.nn.Parameter(torch.empty(hidden, hidden))
        self.plain = torch.nn.Parameter(torch.empty(1))

    def forward(
        self, query: Tensor, user: Tensor, item: Tensor, residual: Tensor, seen: Tensor
    ) -> Tensor:
        """Return the weighted residuals, (m,); `user` is not read."""
        scores = (query @ self.asking) @ (item @ self.asked).T / query.shape[1] ** 0.5
        weighed = masked_softmax(scores, seen) * residual
        found = ((weighed @ (item @ self.value)) * query).sum(dim=1)
        count = seen.sum(dim=1)
        return (found + self.plain * weighed.sum(dim=1)) * (count / (count + 1.0))

    def start(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Weights:
        """A and B normal with rows of expected norm 1, g zero, the rest as every layer's."""
        if name in ("asking", "asked"):
            return rng.normal(0.0, shape[0] ** -0.5, shape).astype(np.float32)
        if name == "plain":
            return np.zeros(shape, dtype=np.float32)
        return super().start(name, shape, rng)


def build(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> RatingModel:
    """A star of width `hidden`, uninitialised; `users`, `layers` and `inputs` are unused."""
    return Star(items, hidden, Attention(hidden), dropout)
