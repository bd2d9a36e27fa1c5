"""Trained models as plain PyTorch Geometric modules: what people take away from a run.

A model's file offers ``plain(module)``, which copies a filled module of its own into layers of
PyTorch Geometric. Such a module takes ``(x, edge_index)``, a graph model ``(x, edge_index,
batch)``: x float32 (N, F), edge_index int64 (2, E) with **both directions** of every undirected
pair and no self-loops, batch int64 (N,), which graph a node is of. It returns logits.

Models on ego-graphs answer for whole graphs with all neighbours, as `EgoNet.forward` does; nothing
is sampled.

Rating models give ratings on the public scale. They take ``(user, item, edge_index, rating)``: user
and item int64 (M,), the pairs asked for, with numbers as all sites agreed on; edge_index int64 (2,
E), users above items, and rating float32 (E,), the ratings that are known. Models of one user read
item, edge_index[1] and rating only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from algorithms.nn._shared.layouts import Scale, Weighing
from algorithms.nn._shared.modules import Dense, EgoNet, Sage
from algorithms.nn._shared.ratings import Bipartite, Neighbours, RatingModel
from algorithms.nn._shared.sparse import propagation

__all__ = [
    "Cat",
    "Clipped",
    "HearSelf",
    "MixedOutputs",
    "PlainRatings",
    "filled",
    "linear",
    "plain_egos",
    "stacked",
]

Step = Any
"""A module, or a module beside what it is called with, as `torch_geometric.nn.Sequential` takes."""


class Cat(torch.nn.Module):
    """Puts rows of several tensors side by side."""

    def forward(self, *parts: Tensor) -> Tensor:
        """Return (N, k1 + k2 + …) of (N, k1), (N, k2), …."""
        return torch.cat(parts, dim=-1)


class MixedOutputs(torch.nn.Module):
    """alpha h_v + (1 - alpha) h_w of two modules that take the same, before the activation."""

    alpha: Tensor

    def __init__(self, own: torch.nn.Module, shared: torch.nn.Module, alpha: float) -> None:
        super().__init__()
        self.own, self.shared = own, shared
        self.register_buffer("alpha", torch.tensor(alpha, dtype=torch.float64))

    def forward(self, *given: Tensor) -> Tensor:
        """Return what both modules return, mixed."""
        share = self.alpha.to(torch.float32)
        mixed: Tensor = share * self.own(*given) + (1.0 - share) * self.shared(*given)
        return mixed


class OnEdges(torch.nn.Module):
    """A node model that is called with features and edges, and makes its propagation of them.

    Args:
        inner: takes features, a propagation, a generator, and whether it trains.
        kind: how neighbours are weighed.
    """

    def __init__(self, inner: torch.nn.Module, kind: Weighing) -> None:
        super().__init__()
        self.inner, self.kind = inner, kind

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, (N, C), of edges int64 (2, M), each pair in both directions, no self-loops."""
        once = torch.unique(edge_index[:, edge_index[0] < edge_index[1]], dim=1)
        matrix = propagation(once, len(x), self.kind)
        logits: Tensor = self.inner(x, matrix, torch.Generator(), False)
        return logits


def filled(parameter: Tensor, values: Tensor) -> None:
    """Copy values, detached, into a parameter of the same shape."""
    with torch.no_grad():
        parameter.copy_(values)


def linear(weight: Tensor, bias: Tensor | None) -> torch.nn.Linear:
    """Return x W + b for W of shape (in, out)."""
    wide, out = weight.shape
    made = torch.nn.Linear(wide, out, bias=bias is not None)
    filled(made.weight, weight.T)
    if bias is not None:
        filled(made.bias, bias)
    return made


def stacked(layers: Sequence[torch.nn.Module], rate: float) -> torch.nn.Module:
    """Return node layers with ReLU and dropout between them, as `Stack` has them."""
    from torch_geometric.nn import Sequential

    steps: list[Step] = []
    for place, layer in enumerate(layers):
        if place:
            steps += [torch.nn.ReLU(), torch.nn.Dropout(rate)]
        alone = isinstance(layer, torch.nn.Linear)
        steps.append((layer, "x -> x" if alone else "x, edge_index -> x"))
    made: torch.nn.Module = Sequential(
        "x, edge_index", [s if isinstance(s, tuple) else (s, "x -> x") for s in steps]
    )
    return made.eval()


class HearSelf(torch.nn.Module):
    """Gives a node without neighbours an edge from itself, so that it hears itself."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return int64 (2, E + isolated nodes)."""
        heard = torch.zeros(x.shape[0], dtype=torch.bool).index_fill(0, edge_index[1], True)
        alone = torch.nonzero(~heard).T.expand(2, -1)
        return torch.cat([edge_index, alone], dim=1)


def plain_egos(net: EgoNet) -> torch.nn.Module:
    """Return the same model in layers of PyG: ``(x, edge_index)`` to logits."""
    from torch_geometric.nn import Sequential

    steps: list[Step] = [(HearSelf(), "x, edge_index -> near")]
    for place, layer in enumerate(net.reduction):
        if place:
            steps.append((torch.nn.Dropout(net.rate), "x -> x"))
        steps += [_layer(layer), (torch.nn.ReLU(), "x -> x")]
    for place, layer in enumerate(net.personal, 1):
        steps += [(torch.nn.Dropout(net.rate), "x -> x"), _layer(layer)]
        if place == len(net.personal) or not net.linear:
            steps.append((torch.nn.ReLU(), "x -> x"))
    head = linear(net.head.weight, None)
    steps += [(torch.nn.Dropout(net.rate), "x -> x"), (head, "x -> x")]
    made: torch.nn.Module = Sequential("x, edge_index", steps)
    return made.eval()


def _layer(layer: torch.nn.Module) -> Step:
    if isinstance(layer, Sage):
        return mean_convolution(layer), "x, near -> x"
    if isinstance(layer, Dense):
        return linear(layer.weight, layer.bias), "x -> x"
    raise TypeError(f"{type(layer).__name__} has no plain form; add it here")


def mean_convolution(layer: Sage) -> torch.nn.Module:
    """Return a layer of GraphSAGE as PyG has it."""
    from torch_geometric.nn import SAGEConv

    made: torch.nn.Module = SAGEConv(*layer.own.shape, aggr="mean")
    filled(made.get_parameter("lin_l.weight"), layer.near.T)
    filled(made.get_parameter("lin_l.bias"), layer.bias)
    filled(made.get_parameter("lin_r.weight"), layer.own.T)
    return made


class PlainRatings(torch.nn.Module):
    """One rating model, from 0 to 1 and not clipped: `Clipped` brings it to the scale.

    Args:
        model: filled.
        scale: of the ratings; `users` is 1 for a model of one user.
        near: what the model knows of neighbours, by all items' numbers, or None.
    """

    def __init__(self, model: RatingModel, scale: Scale, near: Neighbours | None) -> None:
        super().__init__()
        self.model, self.scale = model, scale
        self.register_buffer("vectors", None if near is None else near.vectors)
        self.register_buffer("known", None if near is None else near.known)

    def forward(self, user: Tensor, item: Tensor, edge_index: Tensor, rating: Tensor) -> Tensor:
        """Return (M,)."""
        users, items, lowest, highest = self.scale
        if users == 1:
            user = torch.zeros_like(item)
            edge_index = torch.stack([torch.zeros_like(edge_index[1]), edge_index[1]])
        graph = Bipartite(edge_index, users, items, rating).on_scale(lowest, highest - lowest)
        if self.vectors is not None:
            graph.neighbours = Neighbours(cast(Tensor, self.vectors), cast(Tensor, self.known))
        found: Tensor = self.model(graph, user, item, torch.Generator(), False)
        return found[:, 0]


class Clipped(torch.nn.Module):
    """Ratings on the public scale."""

    def __init__(self, module: torch.nn.Module, scale: Scale) -> None:
        super().__init__()
        self.module, self.scale = module, scale

    def forward(self, user: Tensor, item: Tensor, edge_index: Tensor, rating: Tensor) -> Tensor:
        """Return (M,), between the lowest and the highest rating."""
        _, _, lowest, highest = self.scale
        found: Tensor = self.module(user, item, edge_index, rating)
        return (lowest + (highest - lowest) * found).clamp(lowest, highest)
