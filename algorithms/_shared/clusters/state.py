"""Which clusters there are, and when one is cut."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from algorithms._shared.clusters.messages import Start
from algorithms.tasks import Weights
from protocols.messages import Array
from protocols.rounds import Cohort

__all__ = ["Cluster", "Criterion", "Mean", "State"]

Mean = Literal["weighted", "plain"]
"""Which mean change must be small: by records, or all clients alike, for which more is sent."""


@dataclass(frozen=True)
class Cluster:
    """Who trains one model together.

    Attributes:
        cohort: its clients, as a handle.
        weights: the shared layers, (d,).
    """

    cohort: Cohort
    weights: Weights = field(repr=False)


@dataclass(frozen=True)
class State:
    """The public state: all clusters.

    Attributes:
        first: the shared layers before the first round, (d,).
        seed: of every client's own layers.
        step: rounds done.
        since: rounds done at the last split.
        clusters: in the order of their making; empty before the first round.
    """

    first: Weights = field(repr=False)
    seed: int
    step: int = 0
    since: int = 0
    clusters: tuple[Cluster, ...] = ()

    def given(self, weights: Weights) -> Start:
        """Return what a cluster with these shared layers is handed."""
        return Start(weights=weights, seed=self.seed, step=self.step, since=self.since)

    @property
    def models(self) -> tuple[tuple[Cohort, Start], ...]:
        """Who begins the next round with which model; empty before the first round."""
        return tuple((one.cohort, self.given(one.weights)) for one in self.clusters)

    @property
    def start(self) -> Start | None:
        """The one model that all clients begin with; None where there are several."""
        if len(self.clusters) > 1:
            return None
        return self.given(self.clusters[0].weights if self.clusters else self.first)

    def parted(self, place: int, parts: tuple[Cohort, ...]) -> State:
        """Return the state with one cluster cut; all its parts go on with its model."""
        before = self.clusters[place]
        if parts == (before.cohort,):
            return self
        made = tuple(replace(before, cohort=part) for part in parts)
        clusters = (*self.clusters[:place], *made, *self.clusters[place + 1 :])
        return replace(self, clusters=clusters, since=self.step)


@dataclass(frozen=True)
class Criterion:
    """When a cluster is cut; the attributes are options of the algorithms.

    Attributes:
        epsilon1: the norm of the mean change must be below.
        epsilon2: some client's change must have a norm above; None never cuts.
        first_split: so many rounds pass before.
        wait: so many rounds pass after a split of any cluster.
        mean: which mean change.

    Raises:
        ValueError: one is out of range.
    """

    epsilon1: float
    epsilon2: float | None
    first_split: int
    wait: int = 0
    mean: Mean = "weighted"

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon1 < float("inf") or not (self.epsilon2 or 1.0) > 0.0:
            raise ValueError(
                f"epsilon1 = {self.epsilon1} and epsilon2 = {self.epsilon2} are bounds of norms: "
                "choose numbers above 0; epsilon2 = null never cuts a cluster"
            )
        if self.first_split < 0:
            raise ValueError("first_split counts rounds; choose 0 or more")

    def above(self, norm: float) -> bool:
        """Tell, at a client, whether its change is large."""
        return self.epsilon2 is not None and norm > self.epsilon2

    def met(self, state: State, cluster: Cluster, mean: Array, above: int) -> bool:
        """Tell whether a cluster stands still as a whole while some of its clients move."""
        grown = state.step > self.first_split and state.step - state.since >= self.wait
        still = float(np.linalg.norm(mean)) < self.epsilon1
        large = cluster.cohort.size > 2 and cluster.cohort.divisible
        return self.epsilon2 is not None and grown and large and above > 0 and still
