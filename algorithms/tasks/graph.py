"""Graph classification: many graphs per client, each with one label or with several yes-or-no ones.

A data set with one yes-or-no question (is this molecule active?) counts as several with one column,
so that it has one score a graph and is ranked by ROC-AUC. Sets with one label of C classes, two
among them, have C scores and are counted right or wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from algorithms import nn
from algorithms.nn._shared.graphs import Blocks, GraphBatch
from algorithms.nn._shared.per_example import PerGraph
from algorithms.nn._shared.sparse import Weighing, propagation
from algorithms.scores import Scoring
from algorithms.scores.accuracy import SCORING
from algorithms.scores.ranking import Ranking
from algorithms.tasks import DataSpec, Predictions, Split
from algorithms.tasks._flat import FlatTask, Numbers, Optimiser
from algorithms.tasks._private import PullBack
from algorithms.tasks.site import Site
from protocols.messages import SumMessage

__all__ = ["GraphTask", "GraphsData", "GraphsLike"]

_AT_ONCE = 1024
"""Graphs that are predicted at once, so that memory does not grow with a site."""


class GraphsLike(Split, Protocol):
    """Arrays from which `GraphsData` is built; `secure_fgl.data.ClientGraphs` is one."""

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """int64 (G,), nodes of each graph, numbered graph after graph."""

    @property
    def edges(self) -> npt.NDArray[np.int64]:
        """int64 (2, M) over the nodes of all graphs, each undirected pair once with u < v."""

    @property
    def x(self) -> Any:
        """Features (N, F) of all nodes: scipy CSR or ndarray."""

    @property
    def y(self) -> npt.NDArray[Any]:
        """int64 (G,), or float32 (G, T) of 0, 1 and NaN for missing."""


@dataclass(frozen=True, repr=False, eq=False)
class GraphsData:
    """One client's graphs, ready for training. Everything here is private.

    Attributes:
        sizes: int64 (G,), nodes of each graph, 1 or more.
        edges: int64 (2, M) over the nodes of all graphs, each undirected pair once.
        x: features (N, F) of all nodes, dense tensor or scipy CSR.
        y: int64 (G,), -1 for no label; or float32 (G, T) of 0, 1 and NaN for missing.
        train, val, test: bool (G,), disjoint, never on a graph with y = -1.
    """

    sizes: Numbers
    edges: Tensor
    x: Tensor | sp.csr_array
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    _blocks: dict[str, Blocks] = field(default_factory=dict)
    _latest: dict[str, tuple[bytes, GraphBatch]] = field(default_factory=dict)

    @classmethod
    def from_graphs(cls, graphs: GraphsLike) -> GraphsData:
        """From numpy and scipy arrays, which are copied.

        Raises:
            ValueError: shapes disagree, a graph has no node, an edge leaves its graph, features or
                labels are out of range, masks overlap, or a mask holds an unlabelled graph.
        """
        _check(graphs)
        several = np.asarray(graphs.y).ndim > 1
        return cls(
            sizes=np.array(graphs.sizes, dtype=np.int64),
            edges=torch.from_numpy(np.array(graphs.edges, dtype=np.int64)),
            x=_features(graphs.x),
            y=torch.from_numpy(np.array(graphs.y, dtype=np.float32 if several else np.int64)),
            train=torch.from_numpy(np.array(graphs.train, dtype=bool)),
            val=torch.from_numpy(np.array(graphs.val, dtype=bool)),
            test=torch.from_numpy(np.array(graphs.test, dtype=bool)),
        )

    @property
    def count(self) -> int:
        """Number of training records."""
        return int(self.train.sum())

    @property
    def graphs(self) -> int:
        """Number of graphs, G."""
        return len(self.sizes)

    @property
    def features(self) -> int:
        """Number of input features, F."""
        return int(self.x.shape[1])

    def cut(self, graphs: Numbers, kind: Weighing) -> GraphBatch:
        """The graphs of these numbers, with propagation of this kind; the latest are kept.

        Where a site has fewer graphs than a batch, every step takes the same ones; and a mixture
        of two models takes each batch twice.
        """
        asked = graphs.tobytes()
        kept = self._latest.get(kind)
        if kept is None or kept[0] != asked:
            if kind not in self._blocks:
                whole = propagation(self.edges, self.x.shape[0], kind)
                self._blocks[kind] = Blocks(self.sizes, self.x, whole, kind)
            kept = (asked, self._blocks[kind].cut(graphs))
            self._latest[kind] = kept
        return kept[1]

    def __repr__(self) -> str:
        return "<GraphsData>"


def _features(x: Any) -> Tensor | sp.csr_array:
    if isinstance(x, np.ndarray):
        return torch.tensor(x, dtype=torch.float32)
    tidy: sp.csr_array = sp.csr_array(x, dtype=np.float32, copy=True)
    tidy.sum_duplicates()
    return tidy


def _check(graphs: GraphsLike) -> None:
    sizes, edges = np.asarray(graphs.sizes), np.asarray(graphs.edges)
    if sizes.ndim != 1 or (sizes < 1).any():
        raise ValueError("sizes must say of each graph how many nodes it has, 1 or more")
    nodes = int(sizes.sum())
    if graphs.x.shape[0] != nodes:
        raise ValueError(
            "features and sizes disagree on the number of nodes; features need one row for each "
            "node of each graph"
        )
    values = graphs.x if isinstance(graphs.x, np.ndarray) else graphs.x.data
    if not np.isfinite(values).all():
        raise ValueError("the features hold NaN or infinity; clean or impute them before training")
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError("edges must have the shape (2, M): one column for each undirected pair")
    owner = np.repeat(np.arange(len(sizes)), sizes)
    if edges.size and (
        edges.min() < 0 or edges.max() >= nodes or (owner[edges[0]] != owner[edges[1]]).any()
    ):
        raise ValueError(
            "an edge points outside its graph; nodes are numbered graph after graph, over all the "
            "graphs of the client"
        )
    _check_labels(graphs, len(sizes))


def _check_labels(graphs: GraphsLike, count: int) -> None:
    y = np.asarray(graphs.y)
    masks = [np.asarray(mask, dtype=bool) for mask in (graphs.train, graphs.val, graphs.test)]
    if y.ndim not in (1, 2) or len(y) != count or any(m.shape != (count,) for m in masks):
        raise ValueError(
            "sizes, labels and masks disagree on the number of graphs; each needs one entry a "
            "graph: check how the graphs were shared out"
        )
    if np.sum(masks, axis=0).max(initial=0) > 1:
        raise ValueError("train, val and test overlap; a graph may have one role only")
    if y.ndim == 1 and (np.any(masks, axis=0) & (y < 0)).any():
        raise ValueError("an unlabelled graph is in a split; leave such graphs out of all masks")
    if y.ndim == 2 and not ((y == 0) | (y == 1) | np.isnan(y)).all():
        raise ValueError("a yes-or-no label is none of 0, 1 and NaN (missing); recode the labels")


class GraphTask(FlatTask):
    """Graph classification with one of the models of `algorithms.nn`.

    With one label a graph the loss is the cross entropy and accuracy is counted. With yes-or-no
    labels (`spec.multilabel`) it is the binary cross entropy, averaged over the labels that the
    batch has (0 if it has none), and ROC-AUC is counted, see `algorithms.scores.ranking`.

    Args:
        spec: what is known of the data in public.
        model: name of a file in `algorithms/nn`.
        hidden: width of the hidden layers.
        layers: number of rounds of message passing.
        dropout: rate on hidden layers, in [0, 1).
        lr, weight_decay, optimiser, batch, keep_moments: see `FlatTask`.

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

    def _build(self) -> torch.nn.Module:
        return self._file.build(*self._shape)

    def _head(self, module: torch.nn.Module) -> list[torch.nn.Parameter]:
        return nn.head(module)

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
        if records is not None:
            found: Tensor = module(data.cut(records, self._file.PROPAGATION), draws, training)
            return found
        everything = np.arange(data.graphs)
        parts = np.split(everything, range(_AT_ONCE, data.graphs, _AT_ONCE))
        return torch.cat([self._outputs(module, data, part, draws, training) for part in parts])

    def _loss(self, outputs: Tensor, data: GraphsData, records: Numbers) -> Tensor:
        y = data.y[torch.from_numpy(records)]
        if not self.spec.multilabel:
            return cross_entropy(outputs, y)
        known = (~torch.isnan(y)).to(outputs.dtype)
        terms = binary_cross_entropy_with_logits(outputs, y.nan_to_num(), known, reduction="sum")
        return terms / known.sum().clamp(min=1.0)

    def _activate(self, outputs: Tensor) -> Tensor:
        return torch.sigmoid(outputs) if self.spec.multilabel else torch.softmax(outputs, dim=1)

    def _per_record(self, module: torch.nn.Module, data: GraphsData) -> PullBack:
        each, kind = PerGraph(module, data.features), self._file.PROPAGATION
        return lambda records, slopes: each.rows(lambda g: data.cut(g, kind), records, slopes)
