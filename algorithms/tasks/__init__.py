"""What is learnt: a task owns the model and turns it into one flat vector of shared parameters.

Algorithms see a task only through `Task`, so the same FedAvg trains node classifiers, graph
classifiers and rating predictors. Frameworks (torch) live in the tasks' own files, not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from algorithms.site import Site

__all__ = ["DataSpec", "Predictions", "Split", "Task", "Weights"]

Weights = npt.NDArray[np.float32]
"""Shared parameters, shape (d,), in the task's documented order."""

Predictions = npt.NDArray[np.float32]
"""One row a record, shape (N, C)."""

Split = Literal["train", "val", "test"]


@dataclass(frozen=True, slots=True)
class DataSpec:
    """What a plan may know of the data without reading a feature, a label or an edge.

    Attributes:
        task: kind of task, "node".
        features: input features per record.
        classes: number of classes.
        records: public upper bound of the training records at any one site, a power of two. The
            true counts are private; sizes and head-room are planned with this bound.
        clients: number of sites.
        synthetic: whether the data was generated; carried into every plan and report.
        name: the data set's catalogue name.

    Raises:
        ValueError: a size is below 1, or `records` is not a power of two.
    """

    task: str
    features: int
    classes: int
    records: int
    clients: int
    synthetic: bool
    name: str

    def __post_init__(self) -> None:
        for field in ("features", "classes", "records", "clients"):
            if getattr(self, field) < 1:
                raise ValueError(f"DataSpec.{field} must be 1 or more")
        if self.records & (self.records - 1):
            raise ValueError(
                "DataSpec.records must be a power of two: an exact bound would tell the number of "
                "records; round it up"
            )


class Task(Protocol):
    """A model and its training, behind flat float32 vectors of length `size`."""

    @property
    def size(self) -> int:
        """Number of shared parameters, d."""

    def initial(self, rng: np.random.Generator) -> Weights:
        """Starting weights, shape (d,), drawn from `rng` alone."""

    def fit(self, weights: Weights, site: Site, *, epochs: int) -> Weights:
        """Weights after `epochs` passes over the site's training records, shape (d,).

        `weights` is left as it was. A site without training records returns a copy of it.
        """

    def predict(self, weights: Weights, site: Site) -> Predictions:
        """Class probabilities of every record of the site, shape (N, C)."""

    def score(self, predictions: Predictions, site: Site, split: Split) -> tuple[int, int]:
        """(correct, count) over one split of the site's records."""
