"""GCN layers below a linear classifier: the model of FED-PUB (Baek et al., ICML 2023).

    H⁰ = X,    Hˡ⁺¹ = ReLU(P Hˡ Wˡ + bˡ) for every layer,    logits = H W + b,

with P and the layers of `algorithms.nn.gcn` and dropout behind every ReLU. FED-PUB's tables use two
layers of width 128 and a dropout of 0.5. FedPer shares the GCN layers and keeps the classifier.
"""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.nn._shared.graph_model import GraphModel
from algorithms.nn._shared.plain import linear, stacked
from algorithms.nn._shared.sparse import Features, Propagation, product
from algorithms.nn._shared.stack import Stack
from algorithms.nn.modules import gcn


class _Linear(torch.nn.Module):
    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(wide, out))
        self.bias = torch.nn.Parameter(torch.empty(out))

    def forward(self, x: Features, propagation: Propagation) -> Tensor:
        return product(x, self.weight) + self.bias


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphModel:
    """`layers` GCN layers (in, hidden), each with its bias, then W (hidden, C), b; uninitialised.

    The head is W and b.
    """
    below = gcn.build(features, hidden, hidden, layers, dropout).get_submodule("layers")
    return Stack((*below.children(), _Linear(hidden, classes)), dropout)


def plain(module: Stack) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    *below, head = module.layers
    layers = [gcn.convolution(layer.weight, layer.bias) for layer in below]  # type: ignore[arg-type]
    return stacked([*layers, linear(head.weight, head.bias)], module.rate)  # type: ignore[arg-type]
