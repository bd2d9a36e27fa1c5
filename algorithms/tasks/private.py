"""Private training as tasks see it: somebody else draws the batches, clips and adds the noise.

A site whose policy asks for it carries a `PrivateSteps`. The task brings one gradient for each
record that it is asked for and gets back their noised mean; which records were drawn, it need not
remember, and nothing of it may leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["COUPLED", "PrivateSteps", "UnsupportedTraining"]

Gradients = Callable[[npt.NDArray[np.int64]], Iterable[npt.NDArray[np.floating[Any]]]]

COUPLED = {
    "node": "the prediction for a node depends on its neighbours: clipping the gradient of one "
    "node's loss does not bound what that node's features and edges do to the gradients of others",
    "rating": "a training rating is an edge of the graph from which all others are predicted, and "
    "one user has many ratings: clipping one rating's gradient hides neither an edge nor a user",
    "graph": "",
}
"""Why records of a kind of task are no units of their own; empty where they are."""


class UnsupportedTraining(ValueError):
    """Training this task privately would promise what per-record clipping does not give."""


class PrivateSteps(Protocol):
    """Poisson batches and noise for one client, as many as its policy allows."""

    @property
    def unit(self) -> str:
        """What one record is: ``graph``."""

    @property
    def steps(self) -> int:
        """Noised gradients of a round."""

    def step(self, records: int, size: int, gradients: Gradients) -> npt.NDArray[np.float64]:
        """Take one of the round's noised gradients, shape (size,).

        Args:
            records: how many training records there are.
            size: entries of a gradient.
            gradients: from positions among the training records to one gradient for each.
        """
