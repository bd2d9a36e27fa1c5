"""A gated step over what one user rated: FedPerGNN's GGNN, see `algorithms.nn._shared.stars`.

One step of a gated graph network (Li et al., ICLR 2016, eqs. 2 to 6) at the user's node. With the
message m = mean_k s_k V q_k, k rated by u and k ≠ j,

    z = σ(m Z + p U),  r = σ(m R + p S),  c = tanh(m C + (r * p) D),
    layer = <(1 - z) * p + z * c - p, q_j>.
"""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.nn._shared.rating_layouts import Inputs
from algorithms.nn._shared.ratings import RatingModel
from algorithms.nn._shared.stars import Layer, Star, masked_mean


class Gated(Layer):
    """Parameters W, V (h, h), then Z, R, C and U, S, D side by side, (h, 3 h) each."""

    def __init__(self, hidden: int) -> None:
        super().__init__(hidden)
        self.value = torch.nn.Parameter(torch.empty(hidden, hidden))
        self.message = torch.nn.Parameter(torch.empty(hidden, 3 * hidden))
        self.state = torch.nn.Parameter(torch.empty(hidden, 3 * hidden))

    def forward(
        self, query: Tensor, user: Tensor, item: Tensor, residual: Tensor, seen: Tensor
    ) -> Tensor:
        """Return what the step changes in the user's vector, times the items', (m,)."""
        h = len(user)
        said = masked_mean(residual[:, None] * (item @ self.value), seen) @ self.message
        known = user @ self.state[:, : 2 * h]
        gates = torch.sigmoid(said[:, : 2 * h] + known)
        update, reset = gates[:, :h], gates[:, h:]
        fresh = torch.tanh(said[:, 2 * h :] + (reset * user) @ self.state[:, 2 * h :])
        return (update * (fresh - user) * query).sum(dim=1)


def build(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> RatingModel:
    """A star of width `hidden`, uninitialised; `users`, `layers` and `inputs` are unused."""
    return Star(items, hidden, Gated(hidden), dropout)
