"""Layers one after another, with ReLU and dropout between them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from algorithms.nn._shared.graph_model import GraphModel
from algorithms.nn._shared.sparse import Features, Propagation, dropout


class Stack(GraphModel):
    """Graph layers with ReLU and dropout on the hidden activations only.

    Args:
        layers: modules from (x, propagation) to the next activations, in order.
        rate: dropout rate.
    """

    def __init__(self, layers: Iterable[torch.nn.Module], rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.layers = torch.nn.ModuleList(layers)

    def forward(
        self, x: Features, propagation: Propagation, generator: torch.Generator, training: bool
    ) -> Tensor:
        """Logits, shape (N, C)."""
        first, *others = self.layers
        hidden: Tensor = first(x, propagation)
        for layer in others:
            hidden = dropout(torch.relu(hidden), self.rate, generator, training)
            hidden = layer(hidden, propagation)
        return hidden
