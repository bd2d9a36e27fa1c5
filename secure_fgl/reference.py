"""References trained outside the federation, in the simulator only: local-only and centralised.

They say what federation is worth. A real federation cannot compute the centralised one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from algorithms.site import Site
from algorithms.tasks import Task, Weights


def best_test_accuracy(
    task: Task, sites: Sequence[Site], start: Weights, *, rounds: int, epochs: int
) -> float:
    """Train each site alone and return the pooled test accuracy at the best validation round.

    Args:
        task: what is learnt.
        sites: one site (centralised) or one per client (local-only).
        start: common starting weights.
        rounds: number of evaluations.
        epochs: epochs between two evaluations.
    """
    weights = [start for _ in sites]
    best, found = -1.0, 0.0
    for _ in range(rounds):
        weights = [task.fit(w, s, epochs=epochs) for w, s in zip(weights, sites, strict=True)]
        val, test = np.zeros(2), np.zeros(2)
        for w, site in zip(weights, sites, strict=True):
            predictions = task.predict(w, site)
            val += task.score(predictions, site, "val")
            test += task.score(predictions, site, "test")
        if val[0] / max(val[1], 1) > best:
            best, found = val[0] / max(val[1], 1), float(test[0] / max(test[1], 1))
    return found
