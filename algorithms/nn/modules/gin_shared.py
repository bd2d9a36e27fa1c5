"""GIN as GCFL federates it: convolutions of one width between an input layer and a readout.

Xie, Ma, Xiong and Yang, Federated Graph Classification over Non-IID Graphs, NeurIPS 2021, and the
authors' code:

    h_v⁰ = x_v W + b,    h_vˡ⁺¹ = ReLU(MLPˡ(h_vˡ + ∑_{u ∈ N(v)} h_uˡ)),
    logits = readout(ReLU(post(∑_v h_vᴸ))),

with MLPs of two layers and dropout after every convolution and after `post`. The MLPs are the base:
their size depends on `hidden` and `layers` alone (24,960 numbers with 64 and 3), so that clients
with other features and other classes can share them. Input layer, `post` and readout are the head,
which stays at its client. Sums of nodes are not scaled, as in the authors' code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from algorithms.nn._shared.graphs import GraphBatch, GraphsModel, Linear, pooled
from algorithms.nn._shared.plain import linear
from algorithms.nn._shared.sparse import Propagation, dropout, product


class _Convolution(torch.nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.first = Linear(hidden, hidden)
        self.second = Linear(hidden, hidden)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        gathered = x + product(propagation, x)
        return torch.relu(self.second(torch.relu(self.first(gathered))))


class _Head(torch.nn.Module):
    def __init__(self, features: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.input = Linear(features, hidden)
        self.post = Linear(hidden, hidden)
        self.readout = Linear(hidden, classes)


class GINShared(GraphsModel):
    """GIN; first the convolutions, then what stays at the client."""

    def __init__(self, features: int, classes: int, hidden: int, layers: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.layers = torch.nn.ModuleList(_Convolution(hidden) for _ in range(layers))
        self.head = _Head(features, classes, hidden)

    def forward(self, batch: GraphBatch, generator: torch.Generator, training: bool) -> Tensor:
        """Logits, shape (b, C)."""
        hidden: Any = self.head.input(batch.x)
        for layer in self.layers:
            hidden = dropout(layer(hidden, batch.propagation), self.rate, generator, training)
        seen = torch.relu(self.head.post(pooled(hidden, batch, "sum")))
        logits: Tensor = self.head.readout(dropout(seen, self.rate, generator, training))
        return logits


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphsModel:
    """GIN with `layers` convolutions, uninitialised."""
    return GINShared(features, classes, hidden, layers, dropout)


def plain(module: GINShared) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from torch_geometric.nn import GINConv, Sequential, global_add_pool

    def same(layer: Any) -> torch.nn.Linear:
        return linear(layer.weight, layer.bias)

    steps: list[Any] = [(same(module.head.input), "x -> x")]
    for layer in module.layers:
        inner = torch.nn.Sequential(same(layer.first), torch.nn.ReLU(), same(layer.second))
        kept = {name: value.clone() for name, value in inner.state_dict().items()}
        conv = GINConv(inner)  # which draws the parameters of `inner` anew
        inner.load_state_dict(kept)
        steps += [
            (conv, "x, edge_index -> x"),
            (torch.nn.ReLU(), "x -> x"),
            (torch.nn.Dropout(module.rate), "x -> x"),
        ]
    steps += [
        (global_add_pool, "x, batch -> x"),
        (same(module.head.post), "x -> x"),
        (torch.nn.ReLU(), "x -> x"),
        (torch.nn.Dropout(module.rate), "x -> x"),
        (same(module.head.readout), "x -> x"),
    ]
    made: torch.nn.Module = Sequential("x, edge_index, batch", steps)
    return made.eval()
