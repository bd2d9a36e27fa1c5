"""References found outside the federation, in the simulator only: local-only, centralised, ….

They say what federation is worth. A real federation cannot compute those that need all data: the
centralised model, and the clients' models on the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from algorithms.scores.errors import mean_reference
from algorithms.scores.kept import kept_model
from algorithms.scores.once import total
from algorithms.tasks import Task, Weights
from algorithms.tasks.client_model import predictions
from algorithms.tasks.site import Site
from protocols.forms import Algorithm
from protocols.messages import Message
from secure_fgl.config import Config
from secure_fgl.data import Dataset, Masks, Ratings, induce
from secure_fgl.data.kinds import site_data
from secure_fgl.run.naming import learning_seed
from secure_fgl.run.standing import commonest, stood

Metrics = dict[str, float | None]

PMF: dict[str, Any] = {
    "hidden": 16, "lr": 0.01, "weight_decay": 0.5, "optimiser": "adamw", "batch": 4096,
}  # fmt: skip
PMF_ROUNDS = 20
"""Settings of the reference `pmf`, and passes over all ratings; the best on validation counts."""


class Bystander:
    """What only a simulator can look at, since it holds all data.

    Args:
        task: what is learnt.
        sites: the clients' sites after the run.
        whole: the whole data set with its split; None where nobody holds it.
        config: rounds, epochs, seed, and which references are wanted.
    """

    def __init__(
        self,
        task: Task,
        sites: Sequence[Site],
        whole: tuple[Dataset, Masks] | None,
        config: Config,
    ) -> None:
        self._task, self._sites, self._whole, self._config = task, sites, whole, config

    def references(self) -> dict[str, float | None]:
        """Return the headline metric of each reference that is wanted.

        None for one whose training diverged, or that nobody could train or look up.
        """
        return {name: self._reference(name) for name in self._config.evaluation.references}

    def _reference(self, name: str) -> float | None:
        chosen = self._config.algorithm
        if name != "local" and self._whole is None:
            return None
        if name == "mean":
            return self._mean()
        if name == "pmf":
            return self._pmf()
        if name == "whole_graph":
            return self._on_the_whole_graph()
        sites = self._fresh() if name == "local" else [self._centre()]
        start = self._task.initial(np.random.default_rng(self._seed("reference")))
        try:
            found = best_metrics(
                self._task, sites, start, rounds=chosen.rounds, epochs=chosen.epochs
            )
        except ArithmeticError:  # the federated result stands without it
            return None
        return found[self._headline]

    def _mean(self) -> float | None:
        """Return the error of predicting the mean of all training ratings."""
        if self._whole is None:
            return None
        ratings, masks = self._whole
        if not isinstance(ratings, Ratings):
            return None  # only ratings have a mean
        mae, rmse = mean_reference(ratings.rating[masks.train], ratings.rating[masks.test])
        return rmse if self._headline == "test_rmse" else mae

    @property
    def _headline(self) -> str:
        return self._task.scoring.names[0]

    def _on_the_whole_graph(self) -> float | None:
        """Return how well the clients' models do where no edge is missing, on average.

        Each is the model that its client keeps: where all share one, it is that one.
        """
        kept = [found[0] for site in self._sites if (found := kept_model(site)) is not None]
        if self._task.spec.task != "node" or not kept:
            return None
        centre, scoring = self._centre(), self._task.scoring
        scores = [self._task.score(predictions(self._task, m, centre), centre) for m in kept]
        read = [scoring.read(score)[self._headline] for score in scores]
        known = [value for value in read if value is not None]
        return float(np.mean(known)) if known else None

    def _pmf(self) -> float | None:
        """Return the error of biased matrix factorisation trained on everybody's ratings.

        Salakhutdinov and Mnih (NIPS 2007) with biases; width and decay by validation on ML-100K.
        """
        if self._whole is None or self._task.spec.task != "rating":
            return None
        from algorithms.tasks.rating import RatingTask

        task = RatingTask(self._task.spec, model="dot", **PMF)
        start = task.initial(np.random.default_rng(self._seed("reference")))
        found = best_metrics(task, [self._centre()], start, rounds=PMF_ROUNDS, epochs=1)
        return found[self._headline]

    def stood(
        self, after: Sequence[int], metrics: Callable[[int], Metrics]
    ) -> dict[str, Any] | None:
        """Return where the run stood at the share of the commonest class; see `run.standing`."""
        return stood(after, list(map(metrics, range(len(after)))), commonest(self._sites))

    def look(self, algorithm: Algorithm[Any], state: Message) -> float | None:
        """Return the headline metric of a released model that no client was asked to score."""
        scoring = self._task.scoring
        task = self._task
        scores = [
            task.score(predictions(task, algorithm.model(site, state), site), site)
            for site in self._sites
        ]
        return scoring.read(total(scores))[self._headline]

    def _seed(self, *labels: str) -> int:
        return learning_seed(self._config.seed, *labels)

    def _fresh(self) -> list[Site]:
        return [
            Site(site.data, seed=self._seed("local", str(i))) for i, site in enumerate(self._sites)
        ]

    def _centre(self) -> Site:
        if self._whole is None:
            raise ValueError("nobody holds all of this data")
        whole, masks = self._whole
        part = induce(whole, np.arange(whole.records), masks)
        return Site(site_data(part, self._task.spec), seed=self._seed("centralised"))


def best_metrics(
    task: Task, sites: Sequence[Site], start: Weights, *, rounds: int, epochs: int
) -> Metrics:
    """Train each site alone and return the pooled metrics at the best validation round.

    Args:
        task: what is learnt.
        sites: one site (centralised) or one per client (local-only).
        start: common starting weights.
        rounds: number of evaluations.
        epochs: epochs between two evaluations.
    """
    weights = [start for _ in sites]
    best, found = None, dict[str, float | None]()
    for _ in range(rounds):
        weights = [task.fit(w, s, epochs=epochs) for w, s in zip(weights, sites, strict=True)]
        scores = [task.score(task.predict(w, s), s) for w, s in zip(weights, sites, strict=True)]
        pooled = total(scores)
        merit = task.scoring.merit(pooled)
        if best is None or (merit is not None and merit > best):  # without merits the last one
            best, found = merit, task.scoring.read(pooled)
    return found
