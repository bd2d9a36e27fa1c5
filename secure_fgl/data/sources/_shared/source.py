"""What the sources share: public sizes, and what a source must offer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from algorithms.tasks import Kind
from secure_fgl.data.records import Dataset

__all__ = ["Shape", "Source"]


class Shape(NamedTuple):
    """Public sizes of a data set, known without opening it.

    Attributes:
        task: kind of task.
        features: input features per node; 0 for ratings.
        classes: number of classes; of labels, if `multilabel`; 1 for ratings.
        records: nodes, graphs or ratings, by the kind of task; an upper bound where the exact
            number depends on what a library can read.
        synthetic: whether the data is generated.
        multilabel: whether every class is a yes-or-no question of its own, possibly unanswered.
        users, items: how many a rating task knows at most; else 0.
        lowest, highest: the scale of ratings; else 0.
    """

    task: Kind
    features: int
    classes: int
    records: int
    synthetic: bool
    multilabel: bool = False
    users: int = 0
    items: int = 0
    lowest: float = 0.0
    highest: float = 0.0


class Source(Protocol):
    """What a file in this folder offers.

    A source whose names cannot all be listed declares also `PREFIX`: every name that begins so is
    its own.
    """

    NAMES: Mapping[str, Any]

    def describe(self, name: str, options: Mapping[str, Any]) -> Shape:
        """Public sizes, without touching a file."""

    def load(self, name: str, root: Path | None, options: Mapping[str, Any]) -> Dataset:
        """The data set."""
