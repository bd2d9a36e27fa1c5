"""Graph classification: many graphs per client, each with one label or with several yes-or-no ones.

A data set with one yes-or-no question (is this molecule active?) counts as several with one column,
so that it has one score a graph and is ranked by ROC-AUC. Sets with one label of C classes, two
among them, have C scores and are counted right or wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from algorithms import nn
from algorithms.nn._shared.layouts import Layout
from algorithms.tasks import DataSpec, Predictions, Site, Weights
from algorithms.tasks.flat import FlatTask, Numbers, Optimiser
from algorithms.tasks.scores import SCORING, Ranking, Scoring
from protocols.messages import SumMessage

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.tasks.inputs import GraphsData
    from algorithms.tasks.training import PullBack

__all__ = [
    "GraphTask",
]

_AT_ONCE = 1024
"""Graphs that are predicted at once, so that memory does not grow with a site."""


class GraphTask(FlatTask):
    """Graph classification with one of the models of `algorithms.nn`.

    With one label a graph the loss is the cross entropy and accuracy is counted. With yes-or-no
    labels (`spec.multilabel`) it is the binary cross entropy, averaged over the labels that the
    batch has (0 if it has none), and ROC-AUC is counted, see `algorithms.tasks.scores`.

    Args:
        spec: what is known of the data in public.
        model: name of a file in `algorithms/nn`.
        hidden: width of the hidden layers.
        layers: number of rounds of message passing.
        dropout: rate on hidden layers, in [0, 1).
        lr, weight_decay, optimiser, batch, keep_moments: see `Sized`.

    Raises:
        ValueError: the data is not a graph task, the model is unknown or an option is out of range.
    """

    def __init__(  # noqa: PLR0913 - a model's settings, all by name
        self,
        spec: DataSpec,
        *,
        model: str = "gin",
        hidden: int = 128,
        layers: int = 2,
        dropout: float = 0.5,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
        optimiser: Optimiser = "adamw",
        batch: int | None = 64,
        keep_moments: bool = False,
    ) -> None:
        if spec.task != "graph":
            raise ValueError(f"GraphTask needs a graph task; {spec.name!r} is a {spec.task!r} task")
        if hidden < 1 or layers < 1 or not 0.0 <= dropout < 1.0:
            raise ValueError(
                "a model option is out of range; needed are hidden >= 1, layers >= 1, "
                "0 <= dropout < 1"
            )
        self._file = nn.model(model, "graph")
        self._shape = (spec.features, spec.classes, hidden, layers, dropout)
        self._ranking = Ranking(spec.classes) if spec.multilabel else None
        super().__init__(
            spec,
            lr=lr,
            weight_decay=weight_decay,
            optimiser=optimiser,
            batch=batch,
            keep_moments=keep_moments,
        )

    @property
    def scoring(self) -> Scoring:
        """ROC-AUC with yes-or-no labels, else accuracy."""
        return self._ranking or SCORING

    def score(self, predictions: Predictions, site: Site) -> SumMessage:
        """Counts over the validation and the test split: a `RankScore` or a `Score`.

        Raises:
            ValueError: there is not one prediction a graph and class.
            FloatingPointError: predictions are no probabilities.
        """
        data: GraphsData = site.data
        if predictions.shape != (data.graphs, self.spec.classes):
            raise ValueError(
                "predictions must have one row a graph and one column a class; "
                "score what `predict` returned for the same site"
            )
        counted = (self._ranking or SCORING).count
        return counted(predictions, data.y.numpy(), data.val.numpy(), data.test.numpy())

    def plain(self, weights: Weights, beside: Mapping[str, Any]) -> torch.nn.Module:
        """Return one model in layers of PyTorch Geometric, see `algorithms.tasks.training`.

        Raises:
            ValueError: the weights are not those of the whole model.
        """
        found: torch.nn.Module = self._file.plain(self._load(weights, None))
        return found

    def _build(self) -> torch.nn.Module:
        return self._file.build(*self._shape)

    def _declared(self) -> Layout:
        return nn.layout(self._file, *self._shape)

    def _check(self, data: GraphsData) -> None:
        if data.features != self.spec.features:
            raise ValueError(
                "the site's features are not as many as the model's inputs; all clients need the "
                "same feature columns"
            )
        if (data.y.ndim > 1) != self.spec.multilabel:
            raise ValueError(
                "the site's labels are of another kind than the task's; yes-or-no labels are a "
                "table with one column each, a single label is one number a graph"
            )
        if self.spec.multilabel:
            fits = data.y.shape[1] == self.spec.classes
        else:
            fits = not bool((data.y >= self.spec.classes).any())
        if not fits:
            raise ValueError(
                "the site has a label outside the model's classes; all clients need the same list "
                "of classes"
            )

    def _records(self, data: GraphsData) -> Numbers:
        return np.flatnonzero(data.train.numpy())

    def _outputs(
        self,
        module: torch.nn.Module,
        data: GraphsData,
        records: Numbers | None,
        draws: torch.Generator,
        training: bool,
    ) -> Tensor:
        import torch

        if records is not None:
            found: Tensor = module(data.cut(records, self._file.PROPAGATION), draws, training)
            return found
        everything = np.arange(data.graphs)
        parts = np.split(everything, range(_AT_ONCE, data.graphs, _AT_ONCE))
        return torch.cat([self._outputs(module, data, part, draws, training) for part in parts])

    def _loss(self, outputs: Tensor, data: GraphsData, records: Numbers) -> Tensor:
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

        y = data.y[torch.from_numpy(records)]
        if not self.spec.multilabel:
            return cross_entropy(outputs, y)
        known = (~torch.isnan(y)).to(outputs.dtype)
        terms = binary_cross_entropy_with_logits(outputs, y.nan_to_num(), known, reduction="sum")
        return terms / known.sum().clamp(min=1.0)

    def _activate(self, outputs: Tensor) -> Tensor:
        import torch

        return torch.sigmoid(outputs) if self.spec.multilabel else torch.softmax(outputs, dim=1)

    def _per_record(self, module: torch.nn.Module, data: GraphsData) -> PullBack:
        from algorithms.nn._shared.graphs import PerGraph

        each, kind = PerGraph(module, data.features), self._file.PROPAGATION
        return lambda records, slopes: each.rows(lambda g: data.cut(g, kind), records, slopes)
