"""SGC (Wu et al., Simplifying Graph Convolutional Networks, ICML 2019, eq. 8):

    logits = P^K X W + b,    P = D^-1/2 (A + I) D^-1/2.

Computed as P (… (P (X W))): propagating C columns instead of F, which is the same by
associativity. There is no hidden layer, so `hidden` and `dropout` have no meaning and are unused.
A linear model on row-normalised features needs large steps: the paper trains with lr = 0.2 and a
small weight decay; with a GCN's 0.01 it hardly moves in 100 epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Layout, Weighing, affine
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.nn._shared.modules import Parameters
    from algorithms.nn._shared.sparse import Features, Propagation

NAME = "sgc"
TASK: Kind = "node"
PROPAGATION: Weighing = "symmetric"
LINEAR = True


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """W (features, classes), b; both are the head."""
    return Layout((), affine("", features, classes))


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Parameters:
    """SGC with K = `layers` hops, uninitialised."""
    from algorithms.nn._shared.modules import Parameters

    shapes = layout(features, classes, hidden, layers, dropout).whole
    return Parameters(shapes, _logits, hops=layers)


def _logits(
    own: Any, x: Features, propagation: Propagation, generator: torch.Generator, training: bool
) -> Tensor:
    from algorithms.nn._shared.sparse import product

    result = product(x, own.weight)
    for _ in range(own.facts["hops"]):
        result = product(propagation, result)
    logits: Tensor = result + own.bias
    return logits


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `algorithms.nn._shared.plain`."""
    from torch_geometric.nn import SGConv

    from algorithms.nn._shared.plain import filled, stacked

    made: torch.nn.Module = SGConv(*module.weight.shape, K=module.facts["hops"])
    filled(made.get_parameter("lin.weight"), module.weight.T)
    filled(made.get_parameter("lin.bias"), module.bias)
    return stacked([made], 0.0)
