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
        self,
        x: Features,
        propagation: Propagation,
        generator: torch.Generator,
        training: bool,
        given: Tensor | None = None,
    ) -> Tensor:
        """Logits, shape (N, C).

        With `given`, (r, D), the last r nodes' activations behind the first layer's ReLU are these,
        whatever their features.
        """
        first, *others = self.layers
        hidden: Tensor = first(x, propagation)
        for place, layer in enumerate(others):
            hidden = torch.relu(hidden)
            if given is not None and place == 0:
                hidden = torch.cat([hidden[: len(hidden) - len(given)], given])
            hidden = dropout(hidden, self.rate, generator, training)
            hidden = layer(hidden, propagation)
        return hidden
