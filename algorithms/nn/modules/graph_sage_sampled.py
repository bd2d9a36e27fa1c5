"""GraphSAGE whose layers have two halves, one for the node and one for its neighbours.

Hamilton, Ying and Leskovec, NeurIPS 2017, Algorithm 1, with a matrix for each part of the
concatenation, as StellarGraph's mean aggregator has it:

    h_vˡ⁺¹ = ReLU([h_vˡ W_own | mean_{u ∈ S(v)} h_uˡ W_near] + b),    logits = h_vᴸ W + b,

where S(v) is what the propagation matrix holds: drawn neighbours in training, all of them else.
No row normalisation between layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from algorithms.nn._shared.egos import Dense
from algorithms.nn._shared.graph_model import GraphModel
from algorithms.nn._shared.plain import filled, linear, stacked
from algorithms.nn._shared.sparse import Features, Propagation, product
from algorithms.nn._shared.stack import Stack


class _Halves(torch.nn.Module):
    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.own = torch.nn.Parameter(torch.empty(wide, out - out // 2))
        self.near = torch.nn.Parameter(torch.empty(wide, out // 2))
        self.bias = torch.nn.Parameter(torch.empty(out))

    def forward(self, x: Features, propagation: Propagation) -> Tensor:
        near = product(propagation, product(x, self.near))
        return torch.cat([product(x, self.own), near], dim=1) + self.bias


def build(widths: Sequence[int], classes: int, dropout: float) -> GraphModel:
    """GraphSAGE: per layer W_own, W_near, then b; the head's W, b; uninitialised."""
    halves = [_Halves(wide, out) for wide, out in pairwise(widths)]
    return Stack([*halves, Dense(widths[-1], classes)], dropout)


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    *halves, head = module.layers
    layers = [_convolution(layer) for layer in halves]
    return stacked([*layers, linear(head.weight, head.bias)], module.rate)


def _convolution(layer: Any) -> torch.nn.Module:
    from torch_geometric.nn import SAGEConv

    (wide, own), near = layer.own.shape, layer.near.shape[1]
    made: torch.nn.Module = SAGEConv(wide, own + near, aggr="mean")
    apart = layer.own.new_zeros
    filled(made.get_parameter("lin_l.weight"), torch.cat([apart(own, wide), layer.near.T]))
    filled(made.get_parameter("lin_l.bias"), layer.bias)
    filled(made.get_parameter("lin_r.weight"), torch.cat([layer.own.T, apart(near, wide)]))
    return made
