"""Clusters of clients with one model each, cut in two where their changes disagree (GCFL).

What GCFL and GCFL+ have in common: they differ in what two clients are compared by. The message
layer holds who is in a cluster; here a cluster is a handle with a size.

GCFL+ cuts clusters by how alike two sequences of norms are. Dynamic time warping (Sakoe and Chiba,
1978) without a window: the square root of the least sum of squared differences over all monotone
alignments of two sequences. Sequences have a few entries each, so its table is filled here, row by
row, and for many second sequences at once.

A client must not show its sequence, and products of all pairs of entries, of which warping could be
computed, would show it. So a client says how far its sequence is from public ones (`to_pivots`), or
the sequence itself, standardised, for cosines that are correlations (`standardised`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from algorithms.tasks import ClientModel, Site, Task, Weights
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
    "PIVOTS",
    "BothUpdates",
    "Cluster",
    "Clustered",
    "Compare",
    "Criterion",
    "CutGuard",
    "CutRule",
    "Mean",
    "Pivots",
    "Start",
    "State",
    "Update",
    "directed",
    "distances",
    "nearness",
    "pivots",
    "scaled",
    "standardised",
    "to_pivots",
    "warped",
]


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
    count: int = count(unit="record", meaning="training records n_k", training=True)


class BothUpdates(SumMessage):
    """The same, and the change itself, for a mean in which all clients count alike.

    Where all clients but one have n records, delta less n times plain is a multiple of that one's.
    """

    twice: ClassVar[bool] = True
    delta: Vector = real(
        "d", unit="weight x record", meaning="n_k times the change D_k", scale="records"
    )
    plain: Vector = real("d", unit="weight", meaning="the change D_k")
    above: int = count(unit="client", meaning="1 if |D_k| is above epsilon2, else 0")
    count: int = count(unit="record", meaning="training records n_k", training=True)


class Compare(ReleasedMessage):
    """A request to be compared by the changes of this round, which were summed already."""

    step: int = count(unit="round", meaning="rounds done so far, as Start said it")


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


PIVOTS = 32
"""Public sequences that a client compares its own with."""

_STREAM = 7  # of the run's public seed; starting weights come from another


class Pivots(NamedTuple):
    """Public sequences, and what a distance to them is measured by.

    Attributes:
        walks: (m, T), each divided by its standard deviation.
        means: mean distance of the other pivots to each, (m,).
        spreads: standard deviation of these distances, (m,).
    """

    walks: Array
    means: Array
    spreads: Array


def warped(one: Array, others: Array) -> Array:
    """Return the distance by dynamic time warping of one sequence to others.

    Args:
        one: (T,), one entry or more.
        others: (..., U), one entry or more.

    Returns:
        One distance for each of `others`, (...); at most the Euclidean one where T = U.
    """
    cost = (others[..., np.newaxis, :] - one[:, np.newaxis]) ** 2
    *shape, rows, columns = cost.shape
    best = np.full((*shape, rows + 1, columns + 1), np.inf)
    best[..., 0, 0] = 0.0
    for i in range(rows):
        for j in range(columns):
            before = np.minimum(best[..., i, j], best[..., i, j + 1])
            best[..., i + 1, j + 1] = cost[..., i, j] + np.minimum(before, best[..., i + 1, j])
    found: Array = np.sqrt(best[..., rows, columns])
    return found


def distances(rows: Sequence[Array]) -> Array:
    """Return the distances by dynamic time warping of every two sequences, (K, K).

    Args:
        rows: K sequences, each of one entry or more.
    """
    found = np.zeros((len(rows), len(rows)))
    for i, one in enumerate(rows):
        for j in range(i):
            found[i, j] = found[j, i] = warped(one, rows[j])
    return found


def nearness(rows: Array) -> Array:
    """Return 1 for a distance of 0, and -1 for the largest of all distances, (K, K)."""
    between = distances(list(rows))
    found: Array = 1.0 - 2.0 * between / max(float(between.max()), 1e-300)
    return found


def scaled(sequence: Array) -> Array | None:
    """Return a sequence divided by its standard deviation; None for a constant one."""
    sequence = np.asarray(sequence, dtype=np.float64)
    spread = float(sequence.std())
    # Equal numbers may have a deviation of some last bits, and no direction at all.
    if not spread > 1e-12 * float(np.abs(sequence).max(initial=0.0)):
        return None
    return sequence / spread


@lru_cache(maxsize=4)
def pivots(seed: int, length: int) -> Pivots:
    """Return the pivots of a public seed: the same for everyone.

    Args:
        seed: the run's, as `Start` tells it.
        length: entries of a sequence, T.
    """
    rng = np.random.default_rng([seed, _STREAM])
    walks = np.cumsum(rng.standard_normal((PIVOTS, length)), axis=1)
    walks /= walks.std(axis=1, keepdims=True)
    between = distances(list(walks))
    others = between[~np.eye(PIVOTS, dtype=bool)].reshape(PIVOTS, PIVOTS - 1)
    return Pivots(walks, others.mean(axis=1), others.std(axis=1))


def to_pivots(sequence: Array, seed: int) -> Array:
    """Return how far a sequence is from each pivot, in spreads from the pivots' own mean, (m,).

    A constant sequence gives zeros: its cosine with everybody is 0.
    """
    if (own := scaled(sequence)) is None:
        return np.zeros(PIVOTS)
    public = pivots(seed, len(own))
    found: Array = (warped(own, public.walks) - public.means) / public.spreads
    return found


def standardised(sequence: Array) -> Array:
    """Return a sequence with mean 0 and deviation 1, (T,): cosines of two are their correlation.

    A constant sequence gives zeros: its cosine with everybody is 0.
    """
    if (own := scaled(sequence)) is None:
        return np.zeros(len(sequence))
    found: Array = own - own.mean()
    return found


def directed(vector: Array) -> Array:
    """Return a vector with one entry more, which is 1 if all others are zero, and else 0.

    So it always has a direction: that of a vector of zeros is square to that of every other.
    """
    found: Array = np.append(vector, 0.0 if np.any(vector) else 1.0)
    return found
