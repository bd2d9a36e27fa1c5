"""A client's model as a module to take away: tensors in, outputs or ratings out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from algorithms.nn._shared.plain import MixedOutputs
from algorithms.tasks import DataSpec
from algorithms.tasks.client_model import ClientModel

__all__ = ["activated", "plain_model"]


def plain_model(task: Any, model: ClientModel) -> torch.nn.Module:
    """Return a module of the same outputs, in evaluation mode.

    For nodes and graphs it is made of PyTorch Geometric's layers and gives logits, see
    `algorithms.nn._shared.plain`; for ratings see `algorithms.nn._shared.plain_ratings`.

    Args:
        task: of `algorithms.tasks`; it has `plain` for one flat vector of weights.
        model: the client's.

    Raises:
        ValueError: the weights are not those of the whole model.
    """
    made: torch.nn.Module = task.plain(model.shared, model.beside)
    if model.own is not None:
        made = MixedOutputs(task.plain(model.own, model.beside), made, model.alpha)
    return task.finished(made).eval() if hasattr(task, "finished") else made.eval()


def activated(spec: DataSpec, outputs: Tensor) -> Tensor:
    """Return predictions, as `Task.predict` gives them, from what such a module returned."""
    if spec.task == "rating":
        return outputs[:, None]
    return torch.sigmoid(outputs) if spec.multilabel else torch.softmax(outputs, dim=1)
