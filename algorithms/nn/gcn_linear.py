"""GCN layers below a linear classifier: the model of FED-PUB (Baek et al., ICML 2023).

    H⁰ = X,    Hˡ⁺¹ = ReLU(P Hˡ Wˡ + bˡ) for every layer,    logits = H W + b,

with P and the layers of `algorithms.nn.gcn` and dropout behind every ReLU. FED-PUB's tables use two
layers of width 128 and a dropout of 0.5. FedPer shares the GCN layers and keeps the classifier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn import gcn
from algorithms.nn._shared.layouts import Layout, Weighing
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.modules import Stack

NAME = "gcn_linear"
TASK: Kind = "node"
PROPAGATION: Weighing = gcn.PROPAGATION


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """Per GCN layer W (in, hidden), b; then the classifier's W (hidden, C), b, the head."""
    return gcn.layout(features, classes, hidden, layers + 1, dropout)


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Stack:
    """`layers` GCN layers and a classifier, uninitialised."""
    from algorithms.nn._shared.modules import Stack

    shapes = layout(features, classes, hidden, layers, dropout)
    return Stack.of(shapes, [*[gcn.convolve] * layers, None], dropout)


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `algorithms.nn._shared.plain`."""
    from algorithms.nn._shared.plain import linear, stacked

    *below, head = module.layers
    layers = [gcn.convolution(layer.weight, layer.bias) for layer in below]
    return stacked([*layers, linear(head.weight, head.bias)], module.rate)
