"""What both algorithms of GraphFL do at a client: halves of the labels, steps, pseudo-labels.

A client's training labels fall into a support half, which models are adapted to, and a query half,
on which the adapted model is judged (Finn et al., ICML 2017). Both are training data: validation
and test records stay apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from algorithms._shared.steps import adam, descended
from algorithms.tasks import FewShotTask, Labelled, Predictions, Site, Task, Weights

__all__ = ["FewShot", "Inner", "confident", "few_shot", "halved", "seeds_of"]

Numbers = npt.NDArray[np.int64]
Inner = Literal["plain", "adam"]
"""How a client adapts weights; see `few_shot`."""


def few_shot(
    task: Task,
    name: str,
    *,
    query: float,
    self_training: int,
    self_epochs: int,
    labels: int = 0,
    inner: Inner = "plain",
) -> FewShot:
    """Return the client's side for a task.

    Args:
        task: classes of nodes.
        name: the algorithm's, for errors.
        query: share of the training labels in the query half.
        self_training: pseudo-labels per class; 0: none.
        self_epochs: epochs of the local model that gives them.
        labels: records of each half at most; 0: all.
        inner: how weights are adapted; ``adam`` goes on with its moments in all of the run.

    Raises:
        ValueError: an option is out of range, or the task is another.
    """
    if not isinstance(task, FewShotTask):
        raise ValueError(
            f"{name} steps along single labelled nodes of a graph: it needs a node task, and this "
            f"is a {task.spec.task} task"
        )
    if not 0.0 <= query < 1.0 or min(self_training, labels) < 0 or self_epochs < 1:
        raise ValueError(
            "out of range; needed are 0 <= query < 1, self_training, labels >= 0 and "
            "self_epochs >= 1"
        )
    return FewShot(task, query, self_training, self_epochs, labels, inner)


@dataclass(frozen=True)
class FewShot:
    """The client's side; see `few_shot` for the attributes."""

    task: FewShotTask
    query: float
    self_training: int
    self_epochs: int
    labels: int = 0
    inner: Inner = "plain"

    def halves(self, site: Site) -> tuple[Labelled, Labelled]:
        """Return the support and the query half, the same in every round.

        With `self_training` the pseudo-labels are dealt among both, as true labels are.
        """
        if "support" not in site.memory:
            of = self.task.labelled(site)
            if self.self_training:
                of = _joined(of, self.pseudo_labels(site))
            rng = site.generator("halves")
            support, query = (self._few(half, rng) for half in halved(of, self.query, rng))
            site.memory.update(support=np.stack(support), query=np.stack(query))
        return Labelled(*site.memory["support"]), Labelled(*site.memory["query"])

    def _few(self, of: Labelled, rng: np.random.Generator) -> Labelled:
        if not 0 < self.labels < len(of.records):
            return of
        chosen = np.sort(rng.permutation(len(of.records))[: self.labels])
        return Labelled(of.records[chosen], of.labels[chosen])

    def pseudo_labels(self, site: Site) -> Labelled:
        """Return what a model of this client's own labels alone is most confident of.

        The model is trained here and dropped. The authors' script goes on with one model from
        client to client, which tells each client's labels to the next.
        """
        known = self.task.labelled(site)
        if not len(known.records):
            return known
        candidates, classes = self.task.unlabelled(site), np.unique(known.labels)
        return confident(self.alone(site), candidates, classes, self.self_training)

    def alone(self, site: Site) -> Predictions:
        """Return what a model of this client's own labels alone predicts, (N, C)."""
        start = self.task.initial(site.generator("self_training"))
        fitted = self.task.fit(start, site, epochs=self.self_epochs)
        return self.task.predict(fitted, site)

    def slope(self, weights: Weights, site: Site, of: Labelled, seeds: Iterator[int]) -> Weights:
        """Return the gradient of the loss over `of`, (d,)."""
        return self.task.slope_of(weights, site, of, next(seeds))

    def adapted(
        self, weights: Weights, site: Site, of: Labelled, steps: int, seeds: Iterator[int]
    ) -> Weights:
        """Return the weights after some steps of size `task.lr` on `of`, (d,)."""
        for _ in range(steps):
            slope = self.slope(weights, site, of, seeds)
            if self.inner == "adam":
                slope, site.memory["inner"] = adam(slope, site.memory.get("inner"))
            weights = descended(weights, slope, self.task.lr)
        return weights


def seeds_of(site: Site) -> Iterator[int]:
    """Yield seeds of dropout, one a step, from the site's learning randomness."""
    rng = site.generator("few_shot")
    while True:
        yield int(rng.integers(2**63))


def halved(of: Labelled, share: float, rng: np.random.Generator) -> tuple[Labelled, Labelled]:
    """Deal records into support and query, class by class, at even distances.

    Args:
        of: the records.
        share: of the query, rounded down.
        rng: the order within a class.
    """
    line = rng.permutation(len(of.records))
    line = line[np.argsort(of.labels[line], kind="stable")]
    reached = np.floor(np.arange(len(line) + 1) * share + 1e-9)  # 1e-9: 5 x 0.2 is to reach 1
    chosen = np.diff(reached) > 0
    parts = (np.sort(line[~chosen]), np.sort(line[chosen]))
    support, query = (Labelled(of.records[part], of.labels[part]) for part in parts)
    return support, query


def confident(
    predictions: Predictions, candidates: Numbers, classes: Numbers, most: int
) -> Labelled:
    """Return, per class, the records that are predicted with the largest probabilities.

    A record is a candidate for the class that it is predicted as, so none gets two labels, and a
    class that the client has no label of gets none: its local model knows nothing about it.

    Args:
        predictions: (N, C), probabilities of all records.
        candidates: int64, records that may be chosen.
        classes: int64, those that get pseudo-labels.
        most: records a class at most.
    """
    guess = predictions[candidates].argmax(axis=1)
    sure = predictions[candidates, guess]
    found = []
    for label in classes:
        own = np.flatnonzero(guess == label)
        found.append(own[np.argsort(-sure[own], kind="stable")][:most])
    places = np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)
    return Labelled(candidates[places], guess[places].astype(np.int64))


def _joined(first: Labelled, second: Labelled) -> Labelled:
    records = np.concatenate([first.records, second.records])
    labels = np.concatenate([first.labels, second.labels])
    return Labelled(records, labels)
