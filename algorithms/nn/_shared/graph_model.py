"""What node models are: modules from features and propagation to logits."""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.nn._shared.sparse import Features, Propagation

__all__ = ["GraphModel"]


class GraphModel(torch.nn.Module):
    """A module from features and propagation to logits, with injected randomness."""

    def forward(
        self, x: Features, propagation: Propagation, generator: torch.Generator, training: bool
    ) -> Tensor:
        """Logits, shape (N, C). `generator` feeds dropout and is untouched unless `training`."""
        raise NotImplementedError
