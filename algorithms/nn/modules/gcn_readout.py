"""GCN with a readout of features and embeddings, as FedGraphNN classifies molecules.

He et al., FedGraphNN: A Federated Learning Benchmark System for Graph Neural Networks, 2021:

    Hˡ⁺¹ = ReLU(P Hˡ Wˡ),    P = D^-1/2 (A + I) D^-1/2,    the last one, E, without the ReLU,
    r_v = ReLU(ReLU([x_v || e_v] U¹ + c¹) U² + c²),    logits = mean_v (r_v W + b).

Its settings for molecules are two layers, hidden 32 and dropout 0.3. E is as wide as the hidden
layers and r_v twice as wide (32, 64 and 64 there). Its code also leaves out the ReLU between the
layers of the GCN, which it defines and never calls; Kipf and Welling (ICLR 2017), whom it follows,
have it, and so has this file. The mean over nodes is taken before W, which is linear.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from algorithms.nn._shared.graphs import GraphBatch, GraphsModel, Linear, pooled
from algorithms.nn._shared.plain import Cat, linear
from algorithms.nn._shared.sparse import Features, dropout, product
from algorithms.nn.modules import gcn


class GCNReadout(GraphsModel):
    """GCN and readout.

    Parameters: W⁰ (F, hidden), W¹ (hidden, hidden), …; then U¹ for the features (F, 2 hidden), U¹
    for the embeddings (hidden, 2 hidden) and c¹; U² (2 hidden, 2 hidden) and c²; the head's W
    (2 hidden, C) and b.
    """

    def __init__(self, features: int, classes: int, hidden: int, layers: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        widths = pairwise([features, *[hidden] * layers])
        self.layers = torch.nn.ParameterList(torch.empty(wide, out) for wide, out in widths)
        # Two matrices for the two halves of [x || e]: sparse features need no dense copy.
        self.own = torch.nn.Parameter(torch.empty(features, 2 * hidden))
        self.readout = Linear(hidden, 2 * hidden)
        self.second = Linear(2 * hidden, 2 * hidden)
        self.head = Linear(2 * hidden, classes)

    def forward(self, batch: GraphBatch, generator: torch.Generator, training: bool) -> Tensor:
        """Logits, shape (b, C)."""
        first, *others = self.layers
        hidden = product(batch.propagation, product(batch.x, first))
        for weight in others:
            hidden = dropout(torch.relu(hidden), self.rate, generator, training)
            hidden = product(batch.propagation, product(hidden, weight))
        return self._read(batch.x, hidden, batch)

    def _read(self, x: Features, embedding: Tensor, batch: GraphBatch) -> Tensor:
        first = torch.relu(product(x, self.own) + self.readout(embedding))
        logits: Tensor = self.head(pooled(torch.relu(self.second(first)), batch, "mean"))
        return logits


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphsModel:
    """GCN of `layers` layers with a readout, uninitialised."""
    return GCNReadout(features, classes, hidden, layers, dropout)


def plain(module: GCNReadout) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from torch_geometric.nn import Sequential, global_mean_pool

    steps: list[Any] = []
    for place, weight in enumerate(module.layers):
        if place:
            steps += [(torch.nn.ReLU(), "h -> h"), (torch.nn.Dropout(module.rate), "h -> h")]
        steps.append((gcn.convolution(weight, None), f"{'h' if place else 'x'}, edge_index -> h"))
    both = torch.cat([module.own, module.readout.weight])
    steps += [
        (Cat(), "x, h -> h"),
        (linear(both, module.readout.bias), "h -> h"),
        (torch.nn.ReLU(), "h -> h"),
        (linear(module.second.weight, module.second.bias), "h -> h"),
        (torch.nn.ReLU(), "h -> h"),
        (global_mean_pool, "h, batch -> g"),
        (linear(module.head.weight, module.head.bias), "g -> g"),
    ]
    made: torch.nn.Module = Sequential("x, edge_index, batch", steps)
    return made.eval()
