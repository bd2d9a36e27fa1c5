"""What one client predicts with: the shared model, its own, or a mixture of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from algorithms.tasks import Predictions, Task, Weights
from algorithms.tasks.site import Site

__all__ = ["ClientModel", "predictions"]


@dataclass(frozen=True)
class ClientModel:
    """A client's model, as flat vectors of its task.

    Vectors are given in pieces, so that what all clients share is not copied at each of them.

    Attributes:
        weights: pieces of w, float32, (d,) together.
        personal: pieces of v where outputs are mixed, alpha h_v + (1 - alpha) h_w, else empty.
        alpha: share of v.
        beside: arrays that predictions read beside weights, for example vectors of neighbours.
    """

    weights: tuple[Weights, ...]
    personal: tuple[Weights, ...] = ()
    alpha: float = 0.0
    beside: Mapping[str, Any] = field(default_factory=dict)

    def kept(self) -> tuple[Any, ...]:
        """Return plain values, for a site's memory; `ClientModel(*values)` is the model again."""
        return self.weights, self.personal, self.alpha, dict(self.beside)

    @property
    def shared(self) -> Weights:
        """w, (d,)."""
        return _whole(self.weights)

    @property
    def own(self) -> Weights | None:
        """v, (d,); None where nothing is mixed."""
        return _whole(self.personal) if self.personal else None


def _whole(pieces: tuple[Weights, ...]) -> Weights:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def predictions(task: Task, model: ClientModel, site: Site) -> Predictions:
    """Return a model's predictions for every record of a site, as `Task.predict` does.

    Raises:
        ValueError: weights or data do not fit the task.
    """
    if (own := model.own) is None:
        return task.predict(model.shared, site)
    return task.predict_mixed(own, model.shared, model.alpha, site)
