"""What is learnt: a task owns the model and turns it into one flat vector of parameters.

Algorithms see a task only through `Task`, so the same FedAvg trains node classifiers, graph
classifiers and rating predictors. Frameworks (torch) live in the tasks' own files, not here.

**Private training.** Somebody else draws the batches, clips and adds the noise. A site whose policy
asks for it carries a `PrivateSteps`. The task brings one gradient for each record that it is asked
for and gets back their noised mean; which records were drawn, it need not remember, and nothing of
it may leave.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import (
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    Protocol,
    get_args,
    runtime_checkable,
)

import numpy as np
import numpy.typing as npt

from algorithms.tasks.scores import Scoring
from protocols.messages import SumMessage

__all__ = [
    "COUPLED",
    "Batch",
    "ClientModel",
    "DataSpec",
    "FewShotTask",
    "Fitted",
    "Kind",
    "Labelled",
    "MaskedTask",
    "Mixed",
    "Moments",
    "Predictions",
    "PrivateSteps",
    "Records",
    "Site",
    "Split",
    "Task",
    "UnsupportedTraining",
    "Weights",
    "predictions",
]

Weights = npt.NDArray[np.float32]
"""Parameters, shape (d,), in the task's documented order: the base first, then the head."""

Predictions = npt.NDArray[np.float32]
"""One row a record, shape (N, C): class probabilities, or (N, 1) ratings."""

Moments = dict[str, npt.NDArray[np.float32]]
"""What an optimiser remembers, by place and name."""

Kind = Literal["node", "graph", "rating"]
"""Kinds of tasks: classes of nodes, labels of graphs, ratings of items by users."""


@dataclass(frozen=True, slots=True)
class DataSpec:
    """What a plan may know of the data without reading a feature, a label or an edge.

    Attributes:
        task: kind of task.
        features: input features per node; 0 where a rating task has none.
        classes: number of classes; of labels, if `multilabel`; 1 for ratings.
        records: public upper bound of the training records at any one site, a power of two. The
            true counts are private; sizes and head-room are planned with this bound.
        clients: number of sites.
        synthetic: whether the data was generated; carried into every plan and report.
        name: the data set's catalogue name.
        multilabel: whether every class is a yes-or-no question of its own, possibly unanswered.
        users, items: how many a rating task knows at most; else 0.
        lowest, highest: the scale of ratings; else 0.
        common: whether every site was also given one and the same test graph.
        columns: digest of what columns are called and classes mean, in order, if they have names.
        spec: digest of all that sites agreed on about tables of their own; else empty.

    Raises:
        ValueError: a size is out of range, or `records` is not a power of two.
    """

    task: Kind
    features: int
    classes: int
    records: int
    clients: int
    synthetic: bool
    name: str
    multilabel: bool = False
    users: int = 0
    items: int = 0
    lowest: float = 0.0
    highest: float = 0.0
    common: bool = False
    columns: str = ""
    spec: str = ""

    def __post_init__(self) -> None:
        if self.task not in get_args(Kind):
            raise ValueError(f"DataSpec.task must be one of {', '.join(get_args(Kind))}")
        sizes = {"classes": self.classes, "records": self.records, "clients": self.clients}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"DataSpec.{name} must be 1 or more")
        if self.records & (self.records - 1):
            raise ValueError(
                "DataSpec.records must be a power of two: an exact bound would tell the number of "
                "records; round it up"
            )
        if self.task != "rating" and self.features < 1:
            raise ValueError("DataSpec.features must be 1 or more")
        if self.task == "rating":
            self._check_ratings()

    def _check_ratings(self) -> None:
        if min(self.users, self.items) < 1 or self.features < 0:
            raise ValueError("DataSpec.users and items must be 1 or more for ratings")
        if not self.lowest < self.highest:
            raise ValueError("DataSpec.lowest must be below DataSpec.highest")


class Split(Protocol):
    """Which of a client's records train, and which are held out: bool, disjoint, one a record."""

    @property
    def train(self) -> npt.NDArray[np.bool_]:
        """Training records."""

    @property
    def val(self) -> npt.NDArray[np.bool_]:
        """Validation records."""

    @property
    def test(self) -> npt.NDArray[np.bool_]:
        """Test records."""


class Batch(NamedTuple):
    """Training records of one step.

    Attributes:
        records: int64, numbers of the records at the site, in the order they are taken.
        seed: of everything random in this step (dropout); two models stepped on one batch with one
            seed draw alike.
    """

    records: npt.NDArray[np.int64]
    seed: int


@dataclass(frozen=True)
class Mixed:
    """Exact gradients of the loss of a mixture of outputs, alpha h_v + (1 - alpha) h_w.

    Attributes:
        personal: with respect to v, shape (d,): alpha J_v^T z, with z the loss's gradient at the
            mixture.
        shared: with respect to w, shape (d,): (1 - alpha) J_w^T z.
        alpha: with respect to alpha: <z, h_v - h_w>, z being the gradient of the mean over the
            batch.
    """

    personal: Weights = field(repr=False)
    shared: Weights = field(repr=False)
    alpha: float


class Task(Protocol):
    """A model and its training, behind flat float32 vectors of length `size`."""

    @property
    def spec(self) -> DataSpec:
        """What is known of the data in public."""

    @property
    def size(self) -> int:
        """Number of parameters, d."""

    @property
    def base(self) -> int:
        """Number of base parameters; they come first, the head's (the last layer) after them."""

    @property
    def lr(self) -> float:
        """The step size."""

    @property
    def scoring(self) -> Scoring:
        """How predictions are counted."""

    def check_training(self, unit: str) -> None:
        """Raise UnsupportedTraining unless this task can be trained privately for this unit.

        At a site with `training`, `fit` takes the policy's steps whatever `epochs` says, `batches`
        hold no records, and every `gradient` and `mixed` is noised and counted.
        """

    def initial(self, rng: np.random.Generator) -> Weights:
        """Starting weights, shape (d,), drawn from `rng` alone."""

    def fit(
        self,
        weights: Weights,
        site: Site,
        *,
        epochs: int,
        pull: float = 0.0,
        base_only: bool = False,
    ) -> Weights:
        """Weights after `epochs` passes over the site's training records, shape (d,).

        With `pull` > 0 the loss has the term pull/2 |w - weights|^2 (FedProx), with `base_only`
        over the base alone; with 0 every bit is as without it. `weights` is left as it was. A site
        without training records returns a copy.
        """

    def batches(self, site: Site) -> Iterator[Batch]:
        """Batches without end: pass after pass over the training records, each in a new order.

        Empty if the site has no training records.
        """

    def gradient(self, weights: Weights, site: Site, batch: Batch) -> Weights:
        """Gradient of the batch's mean loss (weight decay as an L2 term included), shape (d,)."""

    def mixed(
        self, personal: Weights, shared: Weights, alpha: float, site: Site, batch: Batch
    ) -> Mixed:
        """Gradients of the batch's mean loss of mixed outputs, before the activation.

        Weight decay is included in each model's own gradient, as in `gradient`.
        """

    def predict(self, weights: Weights, site: Site) -> Predictions:
        """Predictions for every record of the site."""

    def predict_mixed(
        self, personal: Weights, shared: Weights, alpha: float, site: Site
    ) -> Predictions:
        """Predictions from alpha h_v + (1 - alpha) h_w, mixed before the activation."""

    def score(self, predictions: Predictions, site: Site) -> SumMessage:
        """What `scoring` counts over the site's validation and test records."""


class Fitted(NamedTuple):
    """What masked training leaves at its client.

    Attributes:
        weights: w, shape (d,).
        masks: m, shape (d,); entries of biases are as they were given.
    """

    weights: Weights
    masks: Weights


@runtime_checkable
class MaskedTask(Task, Protocol):
    """A task whose weight matrices can be masked and which embeds graphs, as FED-PUB needs it."""

    @property
    def width(self) -> int:
        """Entries of an embedding, p."""

    def fit_masked(
        self,
        weights: Weights,
        masks: Weights,
        site: Site,
        *,
        epochs: int,
        l1: float = 0.0,
        l2: float = 0.0,
    ) -> Fitted:
        """Weights w and masks m after `epochs` passes over the training records.

        The loss is that of the model w * m, plus l1 |m|_1 + l2 |w - weights|_2^2; both are trained
        alike. Biases have no mask. A site without training records returns copies.
        """

    def embed(self, weights: Weights, graph: Any) -> Predictions:
        """Hidden activations below the head, before their ReLU, for every node of a graph, (N, p).

        `graph` is public; it lies at no site. A model of a single layer gives its outputs.
        """


@runtime_checkable
class FewShotTask(Task, Protocol):
    """A task that steps along any labelled records of a site, as GraphFL needs it."""

    def labelled(self, site: Site) -> Labelled:
        """The training records, ascending, with their own labels."""

    def tuning(self, site: Site) -> Labelled:
        """Labelled records of new classes that a model is tuned to; often none."""

    def unlabelled(self, site: Site) -> npt.NDArray[np.int64]:
        """All other records, int64 ascending; held-out ones too, whose labels are not read."""

    def slope_of(self, weights: Weights, site: Site, of: Labelled, seed: int) -> Weights:
        """Gradient of the mean loss over `of` (no decay), (d,); `seed` draws dropout."""

    def curved(
        self, weights: Weights, along: Weights, site: Site, of: Labelled, seed: int
    ) -> Weights:
        """Hessian of the same loss times `along`, (d,)."""


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


_STAYS = (
    "a Site cannot be pickled, copied or serialised: it holds a client's private graph and "
    "labels, which leave only as messages through the gateway. Pass the Site itself within the "
    "client's process, or declare a Message for what must be said"
)


class Records(Protocol):
    """Task-specific private records; all that `Site` needs of them is how many train."""

    @property
    def count(self) -> int:
        """Number of training records."""


class Labelled(NamedTuple):
    """Numbers of records at a site, each once, and the labels they train with, int64 (n,) each."""

    records: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


class Site:
    """A client's private side: its records, its memory between rounds, its learning randomness.

    Args:
        data: the task's record, for example `algorithms.tasks.inputs.NodeData`.
        seed: root of this client's *learning* randomness (dropout, shuffles), at least 0. Secrets
            never come from here; they come from the operating system.
        training: draws batches and noise where the policy asks for private training, else None.
        about: tells what belongs to a model that is taken away from this site (names of features
            and classes, their scaling, the digest of the data), plain values by name.

    Attributes:
        data, training, about: as given.
        memory: private state across rounds (personal layers, momentum), owned by the algorithm.
        draws: how often each generator label was asked; belongs to a saved client state together
            with `memory`, so that a resumed client continues with the same random streams.

    The representation is mute and every way of copying is refused, so that a stray log line or a
    queue between processes cannot carry a graph out of the client.
    """

    __slots__ = ("_seed", "about", "data", "draws", "memory", "training")

    def __init__(
        self,
        data: Any,
        *,
        seed: int,
        training: PrivateSteps | None = None,
        about: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        if seed < 0:
            raise ValueError("a site's seed must be 0 or more; choose a non-negative integer")
        self.data, self.training, self.about = data, training, about
        self.memory: dict[str, Any] = {}
        self.draws: dict[str, int] = {}
        self._seed = seed

    @property
    def count(self) -> int:
        """Number of training records (private: it leaves only inside a protected sum)."""
        return int(self.data.count)

    def generator(self, label: str) -> np.random.Generator:
        """A fresh generator for one purpose, the same in every replay.

        It depends on (seed, label, how often this label was asked) and on nothing else: asking
        for one label never shifts the stream of another. The label enters through SHA-256, since
        Python's own `hash` of a string changes from process to process.
        """
        asked = self.draws.get(label, 0)
        self.draws[label] = asked + 1
        words = np.frombuffer(hashlib.sha256(label.encode()).digest(), dtype="<u4")
        return np.random.default_rng([self._seed, asked, *(int(word) for word in words)])

    def on(self, data: Any) -> Site:
        """Return this site on other data of its client: one memory, and the same random streams."""
        other = Site(data, seed=self._seed, training=self.training, about=self.about)
        other.memory, other.draws = self.memory, self.draws
        return other

    def __repr__(self) -> str:
        return "<Site>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(_STAYS)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(_STAYS)

    def __getstate__(self) -> NoReturn:
        raise TypeError(_STAYS)

    def __copy__(self) -> NoReturn:
        raise TypeError(_STAYS)

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError(_STAYS)


@dataclass(frozen=True)
class ClientModel:
    """A client's model, as flat vectors of its task.

    Vectors are given in pieces, so that what all clients share is not copied at each of them.

    Attributes:
        weights: pieces of w, float32, (d,) together.
        personal: pieces of v where outputs are mixed, alpha h_v + (1 - alpha) h_w, else empty.
        alpha: share of v.
        beside: arrays that predictions read beside weights, for example vectors of neighbours.
    """

    weights: tuple[Weights, ...]
    personal: tuple[Weights, ...] = ()
    alpha: float = 0.0
    beside: Mapping[str, Any] = field(default_factory=dict)

    def kept(self) -> tuple[Any, ...]:
        """Return plain values, for a site's memory; `ClientModel(*values)` is the model again."""
        return self.weights, self.personal, self.alpha, dict(self.beside)

    @property
    def shared(self) -> Weights:
        """w, (d,)."""
        return _whole(self.weights)

    @property
    def own(self) -> Weights | None:
        """v, (d,); None where nothing is mixed."""
        return _whole(self.personal) if self.personal else None


def _whole(pieces: tuple[Weights, ...]) -> Weights:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def predictions(task: Task, model: ClientModel, site: Site) -> Predictions:
    """Return a model's predictions for every record of a site, as `Task.predict` does.

    Raises:
        ValueError: weights or data do not fit the task.
    """
    if (own := model.own) is None:
        return task.predict(model.shared, site)
    return task.predict_mixed(own, model.shared, model.alpha, site)
