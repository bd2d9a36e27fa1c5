"""What is learnt: a task owns the model and turns it into one flat vector of parameters.

Algorithms see a task only through `Task`, so the same FedAvg trains node classifiers, graph
classifiers and rating predictors. Frameworks (torch) live in the tasks' own files, not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from algorithms.scores import Scoring
from protocols.messages import SumMessage

if TYPE_CHECKING:
    from algorithms.tasks.site import Labelled, Site

__all__ = [
    "Batch",
    "DataSpec",
    "FewShotTask",
    "Fitted",
    "Kind",
    "MaskedTask",
    "Mixed",
    "Moments",
    "Predictions",
    "Split",
    "Task",
    "Weights",
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
