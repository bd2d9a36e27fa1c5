"""Trained models as plain PyTorch Geometric modules: what people take away from a run.

A model's file offers ``plain(module)``, which copies a filled module of its own into layers of
PyTorch Geometric. Such a module takes ``(x, edge_index)``, a graph model ``(x, edge_index,
batch)``: x float32 (N, F), edge_index int64 (2, E) with **both directions** of every undirected
pair and no self-loops, batch int64 (N,), which graph a node is of. It returns logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from algorithms.nn._shared.layouts import Weighing
from algorithms.nn._shared.sparse import propagation

__all__ = ["Cat", "MixedOutputs", "filled", "linear", "stacked"]

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
    """Return node layers with ReLU and dropout between them, as `_shared.stack.Stack` has them."""
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
