"""SGC (Wu et al., Simplifying Graph Convolutional Networks, ICML 2019, eq. 8):

    logits = P^K X W + b,    P = D^-1/2 (A + I) D^-1/2.

Computed as P (… (P (X W))): propagating C columns instead of F, which is the same by
associativity. There is no hidden layer, so `hidden` and `dropout` have no meaning and are unused.
A linear model on row-normalised features needs large steps: the paper trains with lr = 0.2 and a
small weight decay; with a GCN's 0.01 it hardly moves in 100 epochs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.nn._shared.graph_model import GraphModel
from algorithms.nn._shared.plain import filled, stacked
from algorithms.nn._shared.sparse import Features, Propagation, product


class SGC(GraphModel):
    """Linear model on K-fold propagated features; parameters W of shape (F, C), then b."""

    def __init__(self, features: int, classes: int, hops: int) -> None:
        super().__init__()
        self.hops = hops
        self.weight = torch.nn.Parameter(torch.empty(features, classes))
        self.bias = torch.nn.Parameter(torch.empty(classes))

    def forward(
        self, x: Features, propagation: Propagation, generator: torch.Generator, training: bool
    ) -> Tensor:
        """Logits, shape (N, C); nothing is drawn from `generator`."""
        result = product(x, self.weight)
        for _ in range(self.hops):
            result = product(propagation, result)
        return result + self.bias


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphModel:
    """SGC with K = `layers` hops, uninitialised."""
    return SGC(features, classes, layers)


def plain(module: SGC) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from torch_geometric.nn import SGConv

    made: torch.nn.Module = SGConv(*module.weight.shape, K=module.hops)
    filled(made.get_parameter("lin.weight"), module.weight.T)
    filled(made.get_parameter("lin.bias"), module.bias)
    return stacked([made], 0.0)
