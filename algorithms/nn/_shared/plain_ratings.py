"""Rating models as modules of their own: tensors in, ratings on the public scale out.

They take ``(user, item, edge_index, rating)``: user and item int64 (M,), the pairs asked for, with
numbers as all sites agreed on; edge_index int64 (2, E), users above items, and rating float32 (E,),
the ratings that are known. Models of one user read item, edge_index[1] and rating only.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from algorithms.nn._shared.rating_layouts import Scale
from algorithms.nn._shared.ratings import Bipartite, Neighbours, RatingModel

__all__ = ["Clipped", "PlainRatings"]


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
