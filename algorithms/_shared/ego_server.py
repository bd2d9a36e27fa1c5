"""FedEgo at the aggregator: what it remembers, and its layers in a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from algorithms._shared.ego import Start
from algorithms.tasks import Moments, Weights
from algorithms.tasks.ego import EgoTask
from protocols.messages import Array

__all__ = ["LARGEST", "SCALE", "Descent", "Server"]

SCALE, LARGEST = 0.25, 1 / 16
"""By what gradients are multiplied in the first sum, and how large about the largest of a matrix is
in later ones. Protected sums stand on a grid, on which a matrix of small ones would be lost."""


@dataclass(frozen=True)
class Server:
    """What the aggregator remembers.

    Attributes:
        start: what it hands out.
        scales: by what clients multiply each parameter's gradient, a power of two.
        moments: what its optimiser remembers of Phi_g, if the model keeps moments.
    """

    start: Start
    scales: Array
    moments: Moments


class Descent:
    """The aggregator's layers in a round, step by step."""

    def __init__(self, task: EgoTask, state: Server) -> None:
        self._task, self._before = task, state
        self.phi: Weights = np.asarray(state.start.phi, dtype=np.float32)
        self.shares = state.start.shares
        self.scales = state.scales
        self._moments = state.moments if task.keeps else {}

    def slope(self, features: Array, label: Array, seed: int) -> None:
        """Take a step along the gradient on mixtures, see `EgoTask.slope`."""
        self.step(self._task.slope(self.phi, features, label, seed))

    def step(self, slope: Weights) -> None:
        """Take a step along a gradient, (d_Phi,)."""
        self.phi, self._moments = self._task.stepped(self.phi, slope, self._moments)

    def open(self, slopes: Array) -> None:
        """Take a step along clients' mean scaled gradient, (d_Phi,), and scale the next ones anew.

        What clients are told rests on opened sums alone.
        """
        sizes = self._task.parts
        slope = np.asarray(slopes, np.float64) / np.repeat(self.scales, sizes)
        self.step(slope.astype(np.float32))
        largest = np.maximum.reduceat(np.abs(slope), np.cumsum([0, *sizes[:-1]]))
        fitting = np.exp2(np.floor(np.log2(LARGEST / np.maximum(largest, 1e-9))))
        self.scales = np.where(largest > 0.0, fitting, self.scales)

    def count(self, classes: Array) -> None:
        """Take over counts of classes, or sums of their shares, (C,), if there are any.

        Noise may carry one below zero; it counts as zero.
        """
        known = np.maximum(np.asarray(classes, dtype=np.float64), 0.0)
        if known.sum() > 0.0:
            self.shares = known / known.sum()

    def ended(self) -> Server:
        """Return the state after the round."""
        before = self._before.start
        start = Start(step=before.step + 1, seed=before.seed, phi=self.phi, shares=self.shares)
        return Server(start, self.scales, self._moments)
