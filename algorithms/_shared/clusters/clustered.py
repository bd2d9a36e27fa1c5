"""What the clients and the aggregator of GCFL and GCFL+ do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from algorithms._shared.clusters.messages import BothUpdates, Compare, Start, Update
from algorithms._shared.clusters.state import Cluster, Criterion, State
from algorithms.tasks import Task, Weights
from algorithms.tasks.client_model import ClientModel
from algorithms.tasks.site import Site
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import Array, Message, SimilarityMessage
from protocols.rounds import Ask, Cohort, Round, RoundLost

__all__ = ["Clustered", "CutGuard", "CutRule"]

CutRule = Literal["stoer_wagner", "normalised", "agglomerative"]
CutGuard = Literal["constrained", "whole", "leave"]
"""What the message layer offers, see `protocols.forms.Splits`."""


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

    @property
    def _back(self) -> type[Update] | type[BothUpdates]:
        plain = self.criterion.mean == "plain" and self.criterion.epsilon2 is not None
        return BothUpdates if plain else Update

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
        change, above = self._changed(site, given)
        return Update(delta=site.count * change, count=site.count, above=above)

    def train_both(self, site: Site, given: Start) -> BothUpdates:
        """Return the same, and the change itself."""
        change, above = self._changed(site, given)
        delta = site.count * change
        return BothUpdates(delta=delta, plain=change, count=site.count, above=above)

    def _changed(self, site: Site, given: Start) -> tuple[Array, int]:
        base = self.task.base
        fitted = self.task.fit(np.concatenate(self._pieces(site, given)), site, epochs=self.epochs)
        change = fitted[:base].astype(np.float64) - given.weights
        site.memory.update(
            head=fitted[base:].copy(), trained=fitted, change=change, step=given.step
        )
        self.trained(site, given, change)
        return change, int(self.criterion.above(float(np.linalg.norm(change))))

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
            reply = yield Ask(one.cohort, given=state.given(one.weights), back=self._back)
            total = reply.total(self._back)
            mean = total.delta / max(total.count, 1)
            moved.append(replace(one, weights=(one.weights + mean).astype(np.float32)))
            if isinstance(total, BothUpdates):
                mean = total.plain / max(reply.answers, 1)
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
        both = self._back is BothUpdates
        made = Form.of(name, self.round, {Start: self.train_both if both else self.train})
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
            reduced=self._reduced,
        )

    def _reduced(self, rounds: int) -> str:
        """Return what it is if no cluster can be cut in so many rounds."""
        first = self.criterion.first_split
        if self.criterion.epsilon2 is None:
            why = "epsilon2 is none"
        elif rounds <= first:
            why = f"the first cut may come after first_split = {first} rounds, when the run is over"
        else:
            return ""
        return f"one cluster, as FedAvg on the shared layers: {why}"
