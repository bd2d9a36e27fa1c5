"""Models whose weight matrices are multiplied by masks, entry by entry: W * M (FED-PUB)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from algorithms.nn._shared.stack import Stack
from algorithms.tasks import Weights

__all__ = ["Masked", "below", "matrices"]


def below(module: torch.nn.Module) -> torch.nn.Module:
    """Return the model without its last layer, up to its activations before their ReLU.

    A model of a single layer comes back as it is.
    """
    if isinstance(module, Stack) and len(module.layers) > 1:
        return Stack(list(module.layers)[:-1], module.rate)
    return module


def matrices(module: torch.nn.Module) -> npt.NDArray[np.bool_]:
    """Return which entries of the flat vector belong to weight matrices, (d,): all but biases."""
    parts = [np.full(p.numel(), p.dim() > 1) for p in module.parameters()]
    return np.concatenate(parts)


class Masked(torch.nn.Module):
    """A model that computes with W * M in place of each weight matrix W; biases have no mask.

    Args:
        inner: the model, with its weights.
        masks: float32 (d,), in the order of the model's parameters; entries of biases are unread.
    """

    def __init__(self, inner: torch.nn.Module, masks: Weights) -> None:
        super().__init__()
        self.inner = inner
        self._began = [p.detach().clone() for p in inner.parameters()]
        self._given = masks
        whole = [torch.empty_like(p) for p in inner.parameters()]
        vector_to_parameters(torch.tensor(masks), whole)
        self.masks = torch.nn.ParameterList(m for m in whole if m.dim() > 1)

    def forward(self, *arguments: Any) -> Tensor:
        """Outputs of the model with masked matrices."""
        masks = iter(self.masks)
        named = self.inner.named_parameters()
        used = {name: p * next(masks) if p.dim() > 1 else p for name, p in named}
        outputs: Tensor = functional_call(self.inner, used, arguments)
        return outputs

    def penalty(self, l1: float, l2: float) -> Tensor:
        """Return l1 |M|_1 + l2 |W - W'|_2^2 over all masks and parameters; W' is where it began."""
        sizes = [mask.abs().sum() for mask in self.masks]
        ways = [
            (p - before).square().sum()
            for p, before in zip(self.inner.parameters(), self._began, strict=True)
        ]
        return l1 * torch.stack(sizes).sum() + l2 * torch.stack(ways).sum()

    def flat(self) -> tuple[Weights, Weights]:
        """Return weights and masks as new float32 vectors, (d,) each."""
        weights: Weights = parameters_to_vector(self.inner.parameters()).detach().numpy()
        masks = self._given.copy()
        masks[matrices(self.inner)] = parameters_to_vector(self.masks).detach().numpy()
        return weights, masks
