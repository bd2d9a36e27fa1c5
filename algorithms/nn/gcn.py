"""GCN.

Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017:

    H⁰ = X,    Hˡ⁺¹ = ReLU(P Hˡ Wˡ + bˡ),    P = D^-1/2 (A + I) D^-1/2,

without the ReLU on the last layer, whose rows are logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Layout, Weighing, affine, stacked, widths
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.nn._shared.modules import Stack
    from algorithms.nn._shared.sparse import Features, Propagation

NAME = "gcn"
TASK: Kind = "node"
PROPAGATION: Weighing = "symmetric"


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """Per layer W (in, out), b."""
    pairs = widths(features, classes, hidden, layers)
    return stacked(affine(f"layers.{place}.", *pair) for place, pair in enumerate(pairs))


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Stack:
    """GCN with `layers` layers, uninitialised."""
    from algorithms.nn._shared.modules import Stack

    shapes = layout(features, classes, hidden, layers, dropout)
    return Stack.of(shapes, [convolve] * layers, dropout)


def convolve(own: Any, x: Features, propagation: Propagation) -> Tensor:
    """Return P x W + b."""
    from algorithms.nn._shared.sparse import product

    rows: Tensor = product(propagation, product(x, own.weight)) + own.bias
    return rows


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `algorithms.nn._shared.plain`."""
    from algorithms.nn._shared import plain as made

    layers = [convolution(layer.weight, layer.bias) for layer in module.layers]
    return made.stacked(layers, module.rate)


def convolution(weight: Tensor, bias: Tensor | None) -> torch.nn.Module:
    """Return one layer as PyG has it."""
    from torch_geometric.nn import GCNConv

    from algorithms.nn._shared.plain import filled

    made: torch.nn.Module = GCNConv(*weight.shape, bias=bias is not None)
    filled(made.get_parameter("lin.weight"), weight.T)
    if bias is not None:
        filled(made.get_parameter("bias"), bias)
    return made
