"""GraphSAGE with the mean aggregator.

Hamilton, Ying and Leskovec, Inductive Representation Learning on Large Graphs, NeurIPS 2017,
Algorithm 1:

    h_vˡ⁺¹ = ReLU(h_vˡ W_own + mean_{u ∈ N(v)} h_uˡ W_near + b),

the concatenation of the paper written as a sum of two products; all neighbours, no sampling, no
row normalisation between layers; no ReLU on the last layer.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from algorithms.nn._shared.graph_model import GraphModel
from algorithms.nn._shared.plain import filled, stacked
from algorithms.nn._shared.sparse import Features, Propagation, product
from algorithms.nn._shared.stack import Stack


class _Layer(torch.nn.Module):
    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.own = torch.nn.Parameter(torch.empty(wide, out))
        self.near = torch.nn.Parameter(torch.empty(wide, out))
        self.bias = torch.nn.Parameter(torch.empty(out))

    def forward(self, x: Features, propagation: Propagation) -> Tensor:
        near = product(propagation, product(x, self.near))
        return product(x, self.own) + near + self.bias


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphModel:
    """GraphSAGE: per layer W_own, W_near of shape (in, out), then b; uninitialised."""
    widths = [features, *[hidden] * (layers - 1), classes]
    return Stack((_Layer(wide, out) for wide, out in pairwise(widths)), dropout)


def plain(module: Stack) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    return stacked([_convolution(layer) for layer in module.layers], module.rate)  # type: ignore[arg-type]


def _convolution(layer: _Layer) -> torch.nn.Module:
    from torch_geometric.nn import SAGEConv

    made: torch.nn.Module = SAGEConv(*layer.own.shape, aggr="mean")
    filled(made.get_parameter("lin_l.weight"), layer.near.T)
    filled(made.get_parameter("lin_l.bias"), layer.bias)
    filled(made.get_parameter("lin_r.weight"), layer.own.T)
    return made
