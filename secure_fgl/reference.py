"""References trained outside the federation, in the simulator only: local-only and centralised.

They say what federation is worth. A real federation cannot compute the centralised one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from algorithms.site import Site
from algorithms.tasks import Task, Weights
from algorithms.tasks.node import NodeData
from protocols.forms import Algorithm
from protocols.messages import Message
from secure_fgl.config import Config
from secure_fgl.data import ClientGraph, Graph, Masks
from secure_fgl.parties import learning_seed


class Bystander:
    """What only a simulator can look at, since it holds all data.

    Args:
        task: what is learnt.
        sites: the clients' sites after the run.
        whole: the whole graph, with its split.
        config: rounds, epochs, seed, and which references are wanted.
    """

    def __init__(
        self, task: Task, sites: Sequence[Site], whole: tuple[Graph, Masks], config: Config
    ) -> None:
        self._task, self._sites, self._whole, self._config = task, sites, whole, config

    def references(self) -> dict[str, float | None]:
        """Train the references that are wanted; None for one whose training diverged."""
        chosen, found = self._config.algorithm, dict[str, float | None]()
        start = self._task.initial(np.random.default_rng(self._seed("reference")))
        for name in self._config.evaluation.references:
            sites = self._fresh() if name == "local" else [self._centre()]
            try:
                found[name] = best_test_accuracy(
                    self._task, sites, start, rounds=chosen.rounds, epochs=chosen.epochs
                )
            except ArithmeticError:  # the federated result stands without it
                found[name] = None
        return found

    def accuracy(self, algorithm: Algorithm[Any], state: Message) -> float:
        """Return the pooled test accuracy of a released model that no client was asked to score."""
        scores = [
            self._task.score(algorithm.predict(site, state), site, "test") for site in self._sites
        ]
        return sum(right for right, _ in scores) / max(sum(count for _, count in scores), 1)

    def _seed(self, *labels: str) -> int:
        return learning_seed(self._config.seed, *labels)

    def _fresh(self) -> list[Site]:
        return [
            Site(site.data, seed=self._seed("local", str(i))) for i, site in enumerate(self._sites)
        ]

    def _centre(self) -> Site:
        graph, masks = self._whole
        everything = ClientGraph(
            edges=graph.edges,
            x=graph.x,
            y=graph.y,
            train=masks[0],
            val=masks[1],
            test=masks[2],
            nodes=np.arange(graph.nodes),
        )
        return Site(NodeData.from_graph(everything), seed=self._seed("centralised"))


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
