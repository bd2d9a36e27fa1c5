"""FedEgo's messages, its client and its aggregator; see `algorithms.fed_ego`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from algorithms.tasks import ClientModel, Moments, Site, Weights
from algorithms.tasks.ego import EgoTask
from algorithms.tasks.ego_graphs import mashed
from protocols.messages import (
    Array,
    Matrix,
    Message,
    MixedMessage,
    NoisedMessage,
    ReleasedMessage,
    SumMessage,
    Vector,
    WeightedSumMessage,
    category,
    count,
    real,
)

__all__ = [
    "LARGEST",
    "SCALE",
    "Descent",
    "Labels",
    "Mashed",
    "Personal",
    "Reduction",
    "Server",
    "Slope",
    "Start",
    "Step",
    "ToldLabels",
    "distance",
    "mixing",
]


class Start(ReleasedMessage):
    """What a round begins with."""

    step: int = count(unit="round", meaning="rounds done so far")
    seed: int = count(unit="seed", meaning="seed of the starting weights")
    phi: Vector = real("phi", unit="weight", meaning="personalisation layers Phi_g", wire="f4")
    shares: Vector = real("classes", unit="share", meaning="classes of training nodes, P_g")


class Step(ReleasedMessage):
    """One step of the aggregator's layers, for which it asks for gradients."""

    step: int = count(unit="round", meaning="rounds done so far")
    number: int = count(unit="step", meaning="steps done in this round")
    phi: Vector = real("phi", unit="weight", meaning="personalisation layers Phi_g", wire="f4")
    scales: Vector = real(
        "parts", unit="1", meaning="by what each parameter's gradient is multiplied"
    )


class Reduction(WeightedSumMessage):
    """One client's reduction layers on the way up; on the way down the mean of all."""

    theta: Vector = real("theta", unit="weight", meaning="reduction layers Theta", wire="f4")


class Mashed(MixedMessage):
    """A client's mixtures of ego-graphs."""

    features: Array = real(
        "mixtures",
        "positions",
        "embedding",
        unit="activation",
        meaning="mean reduction embedding at a position of several ego-graphs",
        wire="f4",
    )
    label: Matrix = real(
        "mixtures",
        "classes",
        unit="share",
        meaning="classes of the centres of the mixed ego-graphs",
        wire="f4",
        label=True,
    )


class Slope(SumMessage):
    """What the aggregator's layers would change for, by one client's mixtures."""

    slope: Vector = real("phi", unit="scale x loss/weight", meaning="scaled gradient in Phi_g")


class Labels(SumMessage):
    """How often each class is trained on; zeros wherever it is not asked for."""

    counts: Vector = count(
        "classes", unit="record", meaning="training nodes of a class, once a run"
    )


class ToldLabels(NoisedMessage):
    """The classes of one client's training nodes, said once in a run under its own noise."""

    labels: Vector = category(
        "classes", unit="record", meaning="training nodes of a class; one of them is drawn"
    )


def distance(own: Array, everybody: Array) -> float:
    """Return EMD = sum_c |P_i(c) - P_g(c)|, in [0, 2] (eq. 14); both (C,) and summing to one."""
    return float(np.abs(np.asarray(own, np.float64) - everybody).sum())


def mixing(emd: float, gamma: float) -> float:
    """Return l = (EMD / 2)^gamma (eq. 15), in [0, 1]: the larger gamma, the more personal."""
    return float(min(max(emd / 2.0, 0.0), 1.0) ** gamma)


@dataclass(frozen=True)
class Personal:
    """What one client does; the attributes are options of
    `algorithms.fed_ego.fed_ego`.

    A site's memory holds the received mean as "theta", Theta_i, Phi_i as "trained", and the "step"
    that was answered last.
    """

    task: EgoTask
    epochs: int
    gamma: float
    fixed: float | None
    average: bool
    group: int
    passes: int
    share: int

    def start(self, site: Site, given: Start) -> Weights:
        """Return Theta and the mixed Phi that a round begins with, (d,)."""

        def first() -> Weights:
            return self.task.initial(np.random.default_rng(given.seed))

        if given.step == 0:
            return first()
        cut, memory = self.task.reduction, site.memory
        own = memory["trained"] if "trained" in memory else first()
        theta = own[:cut]
        if self.average:
            theta = memory["theta"] if "theta" in memory else first()[:cut]
        mixed = np.float32(self.mixing(site, given))
        phi = np.asarray(given.phi, dtype=np.float32)
        return np.concatenate([theta, mixed * phi + (1 - mixed) * own[cut:]])

    def mixing(self, site: Site, given: Start) -> float:
        """Return l_i; a client without training nodes has no classes of its own, and takes 1."""
        if self.fixed is not None:
            return self.fixed
        own = self.counts(site)
        if not own.sum():
            return 1.0
        return mixing(distance(own / own.sum(), given.shares), self.gamma)

    def counts(self, site: Site) -> Array:
        """Return how many training nodes each class has, int64 (C,)."""
        found: Array = np.bincount(
            self.task.egos(site).label, minlength=self.task.spec.classes
        ).astype(np.int64)
        return found

    def fit(self, site: Site, given: Start) -> Weights:
        """Train, remember and return Theta_i and Phi_i, (d,).

        Raises:
            ValueError: the aggregator goes back behind a round that was answered. At step 0 a
                client forgets the mean Theta, so what it said next would rest on a Theta that all
                know.
        """
        if given.step < site.memory.get("step", 0):
            raise ValueError(
                f"round {given.step} of FedEgo was asked for after round {site.memory['step']}: "
                "the aggregator goes back; ask its operator why, and do not answer"
            )
        site.memory["step"] = given.step
        fitted = self.task.fit(self.start(site, given), site, epochs=self.epochs)
        site.memory["trained"] = fitted
        return fitted

    def train(self, site: Site, given: Start) -> tuple[Message, ...]:
        """Train, and say Theta_i where it is averaged."""
        fitted = self.fit(site, given)
        return (Reduction(theta=fitted[: self.task.reduction]),) if self.average else ()

    def train_and_mix(self, site: Site, given: Start) -> tuple[Message, ...]:
        """Train, and hand the ego-graphs to the message layer, which mixes them."""
        said, egos = self.train(site, given), self.task.egos(site)
        table = self.task.reduce(site.memory["trained"], site)
        return (*said, Mashed.unmixed(table=table, index=egos.places, label=egos.label))

    def receive(self, site: Site, given: Reduction) -> None:
        """Remember the mean of all Theta_i."""
        site.memory["theta"] = np.asarray(given.theta, dtype=np.float32)

    def train_and_show(self, site: Site, given: Start) -> tuple[Message, ...]:
        """Train, and say the first ego-graph of every group without mixing it (w/o Mixup)."""
        said, egos = self.train(site, given), self.task.egos(site)
        first = np.array([group[0] for group in self.groups(site)], dtype=np.int64)
        table = self.task.reduce(site.memory["trained"], site)
        onehot = np.eye(self.task.spec.classes, dtype=np.float32)
        return (*said, Mashed(features=table[egos.places[first]], label=onehot[egos.label[first]]))

    def slope(self, site: Site, given: Step) -> Slope:
        """Return Phi_g's gradient on this step's share of the client's own mixtures."""
        phi = np.asarray(given.phi, dtype=np.float32)
        found, at = np.zeros_like(phi), given.step * self.passes + given.number
        features, label = self.mixtures(site, at)
        if len(label):
            seed = int(site.generator("slope").integers(2**63))
            found = self.task.slope(phi, features, label, seed)
        return Slope(slope=found * np.repeat(given.scales, self.task.parts))

    def slope_and_labels(self, site: Site, given: Step) -> tuple[Message, ...]:
        """Return the same and, once in a run, how often each class is trained on."""
        said = self.slope(site, given)
        # Said once, whatever the aggregator asks: totals of the counts over two cohorts would
        # differ by one client's classes. If that sum is lost, P_g stays even.
        asked = given.step == 0 and given.number == 0 and "counted" not in site.memory
        if asked:
            site.memory["counted"] = True
        counts = self.counts(site)
        return (said, Labels(counts=counts if asked else np.zeros_like(counts)))

    def tell_labels(self, site: Site, given: Start) -> ToldLabels:
        """Hand the classes of the training nodes to the message layer, which draws one of them."""
        return ToldLabels(labels=self.counts(site).astype(np.float64))

    def groups(self, site: Site) -> list[Array]:
        """Return groups of `group` training nodes or more, drawn once in a run.

        A client with fewer has one group of what there is, and one without any has none: its share
        of a step is zero and still counts as a client's.
        """
        if "groups_seed" not in site.memory:
            site.memory["groups_seed"] = int(site.generator("groups").integers(2**63))
        members = len(self.task.egos(site).label)
        order = np.random.default_rng(site.memory["groups_seed"]).permutation(members)
        return np.array_split(order, max(1, members // self.group)) if members else []

    def mixtures(self, site: Site, step: int) -> tuple[Array, Array]:
        """Return the client's `share` own mixtures of a step: features and labels, turn by turn.

        They stay here; of a client with fewer some come twice, so that all have an equal share.
        """
        egos, groups = self.task.egos(site), self.groups(site)
        if not groups:
            return np.zeros(0), np.zeros(0)
        mine = [groups[(step * self.share + at) % len(groups)] for at in range(self.share)]
        table = self.task.reduce(site.memory["trained"], site)
        onehot = np.eye(self.task.spec.classes, dtype=np.float32)
        features = np.stack([mashed(table, egos.places[group]) for group in mine])
        return features, np.stack([onehot[egos.label[group]].mean(axis=0) for group in mine])

    def model(self, site: Site, given: Message | None) -> ClientModel:
        """Return the client's model as received or as trained."""
        weights = self.start(site, given) if isinstance(given, Start) else site.memory["trained"]
        return ClientModel((weights,))


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
