"""Clusters of clients with one model each, cut in two where their changes disagree (GCFL).

What GCFL and GCFL+ have in common: they differ in what two clients are compared by. The message
layer holds who is in a cluster; here a cluster is a handle with a size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from algorithms.tasks import Task, Weights
from algorithms.tasks.client_model import ClientModel
from algorithms.tasks.site import Site
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import (
    Array,
    Message,
    ReleasedMessage,
    SimilarityMessage,
    SumMessage,
    Vector,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Round, RoundLost

__all__ = [
    "Clustered",
    "Compare",
    "Criterion",
    "CutGuard",
    "CutRule",
    "Start",
    "State",
    "Update",
]

CutRule = Literal["stoer_wagner", "normalised", "agglomerative"]
CutGuard = Literal["constrained", "whole", "leave"]
"""What the message layer offers, see `protocols.forms.Splits`."""


class Start(ReleasedMessage):
    """A cluster's shared layers, and what all clusters are told alike."""

    weights: Vector = real("d", unit="weight", meaning="the cluster's shared layers", wire="f4")
    seed: int = count(unit="seed", meaning="seed of every client's own layers, and of pivots")
    step: int = count(unit="round", meaning="rounds done so far")
    since: int = count(unit="round", meaning="rounds done at the last split of any cluster")


class Update(SumMessage):
    """What training changed in the shared layers, weighted by the number of records."""

    delta: Vector = real(
        "d", unit="weight x record", meaning="n_k times the change D_k", scale="records"
    )
    above: int = count(unit="client", meaning="1 if |D_k| is above epsilon2, else 0")
    count: int = count(unit="record", meaning="training records n_k")


class Compare(ReleasedMessage):
    """A request to be compared by the changes of this round, which were summed already."""

    step: int = count(unit="round", meaning="rounds done so far, as Start said it")


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
        epsilon1: the norm of the weighted mean change must be below.
        epsilon2: some client's change must have a norm above; None never cuts.
        first_split: so many rounds pass before.
        wait: so many rounds pass after a split of any cluster.

    Raises:
        ValueError: one is out of range.
    """

    epsilon1: float
    epsilon2: float | None
    first_split: int
    wait: int = 0

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


@dataclass(frozen=True)
class Clustered:
    """What clients and aggregator do; `portrait` and `kind` are what GCFL and GCFL+ differ in.

    A site's memory holds its own layers as "head", all layers as "trained", and of its latest round
    the change of the shared layers as "change" and the number as "step".

    Attributes:
        task: `task.base` is d; what follows in its vector stays at the client.
        epochs: local epochs per round.
        criterion: when a cluster is cut.
        cut: how.
        guard: what keeps a side from being too small.
        kind: what clients are compared by.
        portrait: returns it at a client that took part in the round.
        trained: called at a client after every training, for what it remembers besides.
        apart: whether at most one cluster is cut a round.

    Raises:
        ValueError: the model has no base.
    """

    task: Task
    epochs: int
    criterion: Criterion
    cut: CutRule
    guard: CutGuard
    kind: type[SimilarityMessage]
    portrait: Callable[[Site, Compare], Any]
    trained: Callable[[Site, Start, Array], None] = lambda site, given, change: None
    apart: bool = False

    def __post_init__(self) -> None:
        """Refuse a model without layers to share."""
        if self.task.base < 1:
            raise ValueError(
                "there is nothing to share: the model is a single layer, which stays at the "
                "client; choose a model with layers below its head"
            )

    def init(self, rng: np.random.Generator) -> State:
        """Return the state before the first round."""
        seed = int(rng.integers(2**31))
        return State(self._initial(seed)[: self.task.base], seed)

    def _initial(self, seed: int) -> Weights:
        return self.task.initial(np.random.default_rng(seed))

    def _pieces(self, site: Site, given: Start) -> tuple[Weights, Weights]:
        head = site.memory.get("head")
        return given.weights, self._initial(given.seed)[self.task.base :] if head is None else head

    def train(self, site: Site, given: Start) -> Update:
        """Return what training changed in the shared layers; the others stay here."""
        base = self.task.base
        fitted = self.task.fit(np.concatenate(self._pieces(site, given)), site, epochs=self.epochs)
        change = fitted[:base].astype(np.float64) - given.weights
        site.memory.update(
            head=fitted[base:].copy(), trained=fitted, change=change, step=given.step
        )
        self.trained(site, given, change)
        above = self.criterion.above(float(np.linalg.norm(change)))
        return Update(delta=site.count * change, count=site.count, above=int(above))

    def model(self, site: Site, given: Message | None) -> ClientModel:
        """Return the model as it was received, with this client's own layers, or as trained."""
        if isinstance(given, Start):
            return ClientModel(self._pieces(site, given))
        return ClientModel((site.memory["trained"],))

    def round(self, state: State, cohort: Cohort) -> Round[State]:
        """Sum every cluster, and then cut those that stand still while some clients move."""
        clusters = state.clusters or (Cluster(cohort, state.first),)
        moved: list[Cluster] = []
        due: list[int] = []
        stepped = replace(state, step=state.step + 1)
        for place, one in enumerate(clusters):
            reply = yield Ask(one.cohort, given=state.given(one.weights), back=Update)
            total = reply.total(Update)
            mean = total.delta / max(total.count, 1)
            moved.append(replace(one, weights=(one.weights + mean).astype(np.float32)))
            if self.criterion.met(stepped, one, mean, total.above):
                due.append(place)
        found = replace(stepped, clusters=tuple(moved))
        return (yield from self._cut(found, due))

    def _cut(self, state: State, due: list[int]) -> Round[State]:
        """Cut clusters; from the last one on, so that the places of the others stand."""
        for place in due if self.apart else reversed(due):
            part = state.clusters[place].cohort
            try:
                reply = yield Ask(part, given=Compare(step=state.step - 1), back=self.kind)
            except RoundLost:
                return state
            state = state.parted(place, reply.split(self.kind, part))
            if self.apart and state.since == state.step:
                return state
        return state

    def form(self, name: str) -> Form[State]:
        """Return the form: sums per cluster, and cosines where one may be cut."""
        made = Form.of(name, self.round, {Start: self.train})
        if self.criterion.epsilon2 is None:  # no client answers what is not in the plan
            return replace(made, reach=1.0)
        compare = Exchange("compare", (Compare,), (self.kind,), self.portrait)
        made = replace(made, exchanges=(*made.exchanges, compare), reach=1.0)
        return made.split_by(self.kind, self.cut, self.guard)

    def algorithm(
        self, name: str, citation: str, form: str, dims: dict[str, int]
    ) -> Algorithm[State]:
        """Return the algorithm."""
        return Algorithm(
            name=name,
            citation=citation,
            init=self.init,
            model=self.model,
            forms=(self.form(form),),
            dims={"d": self.task.base, **dims},
        )
