"""Node classification on one graph per client, trained on the whole graph at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from algorithms import nn
from algorithms.nn._sparse import Features, Propagation, Sparse, propagation
from algorithms.site import Site
from algorithms.tasks import DataSpec, Predictions, Split, Weights

__all__ = ["GraphLike", "NodeData", "NodeTask"]


class GraphLike(Protocol):
    """Arrays from which `NodeData` is built; `secure_fgl.data.ClientGraph` is one."""

    @property
    def edges(self) -> npt.NDArray[np.int64]:
        """int64 (2, M), each undirected pair once with u < v."""

    @property
    def x(self) -> Any:
        """Features (N, F): scipy CSR or ndarray."""

    @property
    def y(self) -> npt.NDArray[np.int64]:
        """int64 (N,), -1 for no label."""

    @property
    def train(self) -> npt.NDArray[np.bool_]:
        """Training nodes, bool (N,)."""

    @property
    def val(self) -> npt.NDArray[np.bool_]:
        """Validation nodes, bool (N,)."""

    @property
    def test(self) -> npt.NDArray[np.bool_]:
        """Test nodes, bool (N,)."""


@dataclass(frozen=True, repr=False, eq=False)
class NodeData:
    """One client's graph, ready for training. Everything here is private.

    Attributes:
        edges: int64 (2, M), each undirected pair once.
        x: features (N, F), dense tensor or `Sparse`.
        y: int64 (N,), -1 for no label.
        train, val, test: bool (N,), disjoint, never on an unlabelled node.
    """

    edges: Tensor
    x: Features
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    _propagation: dict[str, Propagation] = field(default_factory=dict)

    @classmethod
    def from_graph(cls, graph: GraphLike) -> NodeData:
        """From numpy and scipy arrays, which are copied.

        Raises:
            ValueError: shapes disagree, an edge points outside the graph, masks overlap, or a
                mask holds an unlabelled node.
        """
        _check(graph)
        sparse = sp.issparse(graph.x)
        return cls(
            edges=torch.from_numpy(np.array(graph.edges, dtype=np.int64)),
            x=Sparse.of(graph.x) if sparse else torch.tensor(graph.x, dtype=torch.float32),
            y=torch.from_numpy(np.array(graph.y, dtype=np.int64)),
            train=torch.from_numpy(np.array(graph.train, dtype=bool)),
            val=torch.from_numpy(np.array(graph.val, dtype=bool)),
            test=torch.from_numpy(np.array(graph.test, dtype=bool)),
        )

    @property
    def count(self) -> int:
        """Number of training records."""
        return int(self.train.sum())

    @property
    def nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.y)

    @property
    def features(self) -> int:
        """Number of input features, F."""
        return int((self.x.matrix if isinstance(self.x, Sparse) else self.x).shape[1])

    def propagation(self, kind: Literal["symmetric", "mean"]) -> Propagation:
        """The propagation matrix of this kind, made once."""
        if kind not in self._propagation:
            self._propagation[kind] = propagation(self.edges, self.nodes, kind)
        return self._propagation[kind]

    def __repr__(self) -> str:
        return "<NodeData>"


def _check(graph: GraphLike) -> None:
    nodes = len(graph.y)
    masks = [np.asarray(mask, dtype=bool) for mask in (graph.train, graph.val, graph.test)]
    if graph.x.shape[0] != nodes or any(mask.shape != (nodes,) for mask in masks):
        raise ValueError(
            "features, labels and masks disagree on the number of nodes; each needs one entry a "
            "node: check how the graph was cut"
        )
    edges = np.asarray(graph.edges)
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError("edges must have the shape (2, M): one column for each undirected pair")
    if edges.size and (edges.min() < 0 or edges.max() >= nodes):
        raise ValueError(
            "an edge points outside the graph; node numbers must be local to the client's graph"
        )
    values = graph.x if isinstance(graph.x, np.ndarray) else graph.x.data
    if not np.isfinite(values).all():
        raise ValueError("the features hold NaN or infinity; clean or impute them before training")
    if np.sum(masks, axis=0).max(initial=0) > 1:
        raise ValueError("train, val and test overlap; a node may have one role only")
    if (np.any(masks, axis=0) & (np.asarray(graph.y) < 0)).any():
        raise ValueError("an unlabelled node is in a split; leave such nodes out of all masks")


class NodeTask:
    """Node classification with one of the models of `algorithms.nn`.

    Training runs on the whole graph of the site: cross entropy over the training nodes, Adam
    started anew in every fit, so nothing of the optimiser survives a round or travels. The same
    weights, site and draws give the same bits for one number of torch threads, which is the
    caller's to set.

    Args:
        spec: what is known of the data in public.
        model: name of a file in `algorithms/nn`.
        hidden: width of the hidden layers.
        layers: number of layers (hops, for SGC).
        dropout: rate on hidden layers, in [0, 1).
        lr: AdamW's step size (Loshchilov and Hutter, ICLR 2019).
        weight_decay: L2 coefficient on all parameters; 5e-4 as in Kipf and Welling (2017), who
            apply it to the first layer.

    Raises:
        ValueError: the data is not a node task, the model is unknown or an option is out of range.
    """

    def __init__(
        self,
        spec: DataSpec,
        *,
        model: str = "gcn",
        hidden: int = 128,
        layers: int = 2,
        dropout: float = 0.5,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
    ) -> None:
        if spec.task != "node":
            raise ValueError(f"NodeTask needs a node task; {spec.name!r} is a {spec.task!r} task")
        if hidden < 1 or layers < 1 or not 0.0 <= dropout < 1.0 or lr <= 0.0 or weight_decay < 0.0:
            raise ValueError(
                "a model option is out of range; needed are hidden >= 1, layers >= 1, "
                "0 <= dropout < 1, lr > 0, weight_decay >= 0"
            )
        self.spec = spec
        self._file = nn.model(model)
        self._shape = (hidden, layers, dropout)
        self._lr, self._weight_decay = lr, weight_decay
        self._size = sum(p.numel() for p in self._build().parameters())

    @property
    def size(self) -> int:
        """Number of shared parameters, d."""
        return self._size

    def initial(self, rng: np.random.Generator) -> Weights:
        """Glorot-uniform matrices (Glorot and Bengio, AISTATS 2010, eq. 16) and zero biases, (d,).

        Drawn with numpy, so that torch's global stream is neither read nor moved.
        """
        parts = []
        for parameter in self._build().parameters():
            shape = tuple(parameter.shape)
            bound = np.sqrt(6.0 / sum(shape)) if len(shape) > 1 else 0.0
            parts.append(rng.uniform(-bound, bound, size=shape).astype(np.float32).ravel())
        return np.concatenate(parts)

    def fit(self, weights: Weights, site: Site, *, epochs: int) -> Weights:
        """Weights after `epochs` full-graph AdamW steps, float32 (d,); `weights` is not changed.

        A site without training records returns a copy of the weights.

        Raises:
            ValueError: `epochs` is negative, or the weights or the site's features do not fit the
                model.
            FloatingPointError: training diverged to NaN or infinity.
        """
        if epochs < 0:
            raise ValueError("epochs must be 0 or more")
        data, module = self._load(weights, site)
        draws = torch.Generator().manual_seed(int(site.generator("fit").integers(2**63)))
        if site.count == 0:
            return weights.copy()
        matrix = data.propagation(self._file.PROPAGATION)
        # Decoupled decay: the optimiser starts anew in every round, and with L2 inside the
        # gradient Adam's first step would move every weight that the loss does not touch (the
        # rare words) by a full lr. On Cora, 5 clients, 30 rounds of 5 epochs, seed 0: validation
        # accuracy 0.81 with decoupled decay, 0.73 with L2.
        adam = torch.optim.AdamW(
            module.parameters(), lr=self._lr, weight_decay=self._weight_decay, foreach=False
        )
        for _ in range(epochs):
            adam.zero_grad()
            logits = module(data.x, matrix, draws, True)
            loss = torch.nn.functional.cross_entropy(logits[data.train], data.y[data.train])
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
        fitted: Weights = parameters_to_vector(module.parameters()).detach().numpy()
        if not np.isfinite(fitted).all():
            raise FloatingPointError(
                "local training diverged: the weights are no longer finite, most likely because "
                "the step size is too large for these features; lower model.lr or scale the "
                "features"
            )
        return fitted

    def predict(self, weights: Weights, site: Site) -> Predictions:
        """Class probabilities, float32 (N, C), without dropout.

        Raises:
            ValueError: the weights or the site's features do not fit the model.
        """
        data, module = self._load(weights, site)
        with torch.no_grad():
            matrix = data.propagation(self._file.PROPAGATION)
            logits = module(data.x, matrix, torch.Generator(), False)
            probabilities: Predictions = torch.softmax(logits, dim=1).numpy()
        return probabilities

    def score(self, predictions: Predictions, site: Site, split: Split) -> tuple[int, int]:
        """(correct, count) over the nodes of one split; the first of equal maxima counts.

        Raises:
            ValueError: there is not one prediction a node, or the split is unknown.
        """
        data: NodeData = site.data
        if split not in ("train", "val", "test"):
            raise ValueError(f"no split is called {split!r}; known are train, val and test")
        if predictions.shape != (data.nodes, self.spec.classes):
            raise ValueError(
                "predictions must have one row a node and one column a class; "
                "score what `predict` returned for the same site"
            )
        mask = getattr(data, split).numpy()
        hits = predictions.argmax(axis=1)[mask] == data.y.numpy()[mask]
        return int(hits.sum()), int(mask.sum())

    def _build(self) -> nn.GraphModel:
        # A module per call, so that clients may train in parallel threads with one task.
        hidden, layers, dropout = self._shape
        return self._file.build(self.spec.features, self.spec.classes, hidden, layers, dropout)

    def _load(self, weights: Weights, site: Site) -> tuple[NodeData, nn.GraphModel]:
        data: NodeData = site.data
        if weights.shape != (self.size,) or weights.dtype != np.float32:
            raise ValueError(
                f"the model has {self.size} float32 parameters and was given "
                f"{weights.dtype} of shape {weights.shape}; both ends need the same model options"
            )
        if data.features != self.spec.features:
            raise ValueError(
                "the site's features are not as many as the model's inputs; all clients need the "
                "same feature columns"
            )
        module = self._build()
        if bool((data.y >= self.spec.classes).any()):
            raise ValueError(
                "the site has a label outside the model's classes; all clients need the same list "
                "of classes, numbered from 0"
            )
        # A copy in torch's aligned memory: the caller's array stays as it was, and equal weights
        # give equal bits wherever numpy had put them.
        vector_to_parameters(torch.tensor(weights), module.parameters())
        return data, module
