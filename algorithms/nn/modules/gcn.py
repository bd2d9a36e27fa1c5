"""GCN.

Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017:

    H⁰ = X,    Hˡ⁺¹ = ReLU(P Hˡ Wˡ + bˡ),    P = D^-1/2 (A + I) D^-1/2,

without the ReLU on the last layer, whose rows are logits.
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
        self.weight = torch.nn.Parameter(torch.empty(wide, out))
        self.bias = torch.nn.Parameter(torch.empty(out))

    def forward(self, x: Features, propagation: Propagation) -> Tensor:
        return product(propagation, product(x, self.weight)) + self.bias


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphModel:
    """GCN: parameters W⁰, b⁰, W¹, b¹, … with Wˡ of shape (in, out); uninitialised."""
    widths = [features, *[hidden] * (layers - 1), classes]
    return Stack((_Layer(wide, out) for wide, out in pairwise(widths)), dropout)


def convolution(weight: Tensor, bias: Tensor | None) -> torch.nn.Module:
    """Return one layer as PyG has it."""
    from torch_geometric.nn import GCNConv

    made: torch.nn.Module = GCNConv(*weight.shape, bias=bias is not None)
    filled(made.get_parameter("lin.weight"), weight.T)
    if bias is not None:
        filled(made.get_parameter("bias"), bias)
    return made


def plain(module: Stack) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    layers = [convolution(layer.weight, layer.bias) for layer in module.layers]  # type: ignore[arg-type]
    return stacked(layers, module.rate)
