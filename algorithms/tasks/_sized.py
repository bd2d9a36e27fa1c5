"""What a plan knows of a task: its options and how many parameters its model has. No torch here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, get_args

import numpy as np

from algorithms.nn._shared.layouts import Layout, Shapes, entries
from algorithms.tasks import DataSpec, Weights
from algorithms.tasks.private import COUPLED, UnsupportedTraining

__all__ = ["Optimiser", "Sized"]

Optimiser = Literal["adamw", "adam", "sgd"]


class Sized(ABC):
    """A model's flat vector of float32, before anybody trains it.

    Args:
        spec: what is known of the data in public.
        lr: step size, above 0.
        weight_decay: L2 coefficient on all parameters: decoupled under ``adamw`` (Loshchilov and
            Hutter, ICLR 2019), in the gradient under ``sgd`` and ``adam``; at least 0.
        optimiser: what `fit` steps with. `gradient` and `mixed` are for plain gradient descent.
        batch: records in a batch; None takes all training records at once.
        keep_moments: whether what ``adam`` and ``adamw`` remember stays in the site's memory, as
            "moments", from one fit to the next; otherwise it starts anew in every fit. In rounds of
            a single step one that starts anew moves every weight by a full lr.

    Raises:
        ValueError: an option is out of range.
    """

    def __init__(
        self,
        spec: DataSpec,
        *,
        lr: float,
        weight_decay: float,
        optimiser: Optimiser = "adamw",
        batch: int | None = None,
        keep_moments: bool = False,
    ) -> None:
        if lr <= 0.0 or weight_decay < 0.0 or (batch is not None and batch < 1):
            raise ValueError("out of range; needed are lr > 0, weight_decay >= 0, batch >= 1")
        if optimiser not in get_args(Optimiser):
            known = ", ".join(get_args(Optimiser))
            raise ValueError(f"no optimiser is called {optimiser!r}; known are {known}")
        self._spec, self._lr, self._weight_decay = spec, lr, weight_decay
        self._optimiser, self._batch, self._keeps = optimiser, batch, keep_moments
        self._layout = self._declared()
        self._size, self._base = self._layout.size, entries(self._layout.base)

    @property
    def spec(self) -> DataSpec:
        """What is known of the data in public."""
        return self._spec

    @property
    def size(self) -> int:
        """Number of parameters, d."""
        return self._size

    @property
    def base(self) -> int:
        """Number of base parameters, which come first; the head's follow."""
        return self._base

    def layout(self) -> Shapes:
        """Name and shape of every parameter, in the order of the flat vector; public."""
        return self._layout.whole

    @property
    def lr(self) -> float:
        """The step size."""
        return self._lr

    @abstractmethod
    def _declared(self) -> Layout:
        """Return the module's parameters, as its file says, without building one."""

    def check_training(self, unit: str) -> None:
        """Raise UnsupportedTraining unless clipped gradients of single records hide this unit."""
        kind = self._spec.task
        if unit != kind or COUPLED[kind]:
            raise UnsupportedTraining(
                f"a {kind} task cannot be trained with the records of one {unit} hidden: "
                + (COUPLED[kind] or "its records are of another kind")
            )

    def initial(self, rng: np.random.Generator) -> Weights:
        """Starting weights, float32 (d,), drawn from `rng` alone."""
        return self._unmade(rng)

    def _unmade(self, rng: np.random.Generator) -> Weights:
        """Glorot-uniform matrices (Glorot and Bengio, AISTATS 2010, eq. 16) and zero biases, (d,).

        Of parameters that no module makes. Drawn with numpy, so that torch's global stream is
        neither read nor moved.
        """
        parts = []
        for _, shape in self._layout.whole:
            bound = np.sqrt(6.0 / sum(shape)) if len(shape) > 1 else 0.0
            parts.append(rng.uniform(-bound, bound, size=shape).astype(np.float32).ravel())
        return np.concatenate(parts)
