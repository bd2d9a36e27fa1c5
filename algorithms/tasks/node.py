"""Node classification on one graph per client, whose nodes see the whole graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from algorithms import nn
from algorithms.nn._shared.layouts import Layout
from algorithms.tasks import DataSpec, Fitted, Labelled, Predictions, Site, Weights
from algorithms.tasks.flat import FlatTask, Numbers, Optimiser
from algorithms.tasks.scores import COMMON, SCORING, Accuracy, CommonAccuracy, Score

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.tasks.inputs import GraphLike, NodeData

__all__ = ["NodeTask"]


class NodeTask(FlatTask):
    """Node classification with one of the models of `algorithms.nn`.

    Outputs are computed on the whole graph of the site; the loss is the cross entropy over the
    nodes of the batch, by default all training nodes.

    Args:
        spec: what is known of the data in public.
        model: name of a file in `algorithms/nn`.
        hidden: width of the hidden layers.
        layers: number of layers (hops, for SGC).
        dropout: rate on hidden layers, in [0, 1).
        lr, weight_decay, optimiser, batch, keep_moments: see `Sized`; 5e-4 as in Kipf and
            Welling (2017), who apply it to the first layer.

    Raises:
        ValueError: the data is not a node task, the model is unknown or an option is out of range.
    """

    def __init__(  # noqa: PLR0913 - a model's settings, all by name
        self,
        spec: DataSpec,
        *,
        model: str = "gcn",
        hidden: int = 128,
        layers: int = 2,
        dropout: float = 0.5,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
        optimiser: Optimiser = "adamw",
        batch: int | None = None,
        keep_moments: bool = False,
    ) -> None:
        if spec.task != "node":
            raise ValueError(f"NodeTask needs a node task; {spec.name!r} is a {spec.task!r} task")
        if hidden < 1 or layers < 1 or not 0.0 <= dropout < 1.0:
            raise ValueError(
                "a model option is out of range; needed are hidden >= 1, layers >= 1, "
                "0 <= dropout < 1"
            )
        self.scoring: Accuracy = COMMON if spec.common else SCORING
        self._file = nn.model(model, "node")
        self._shape = (spec.features, spec.classes, hidden, layers, dropout)
        self.architecture = (self._file.NAME, layers)
        super().__init__(
            spec,
            lr=lr,
            weight_decay=weight_decay,
            optimiser=optimiser,
            batch=batch,
            keep_moments=keep_moments,
        )

    def score(self, predictions: Predictions, site: Site) -> Score:
        """Correct and all nodes of the validation and the test split, and of the common test.

        Raises:
            ValueError: there is not one prediction a node and class.
        """
        data: NodeData = site.data
        if predictions.shape != (data.nodes, self.spec.classes):
            raise ValueError(
                "predictions must have one row a node and one column a class; "
                "score what `predict` returned for the same site"
            )
        y, own = data.y.numpy(), (data.val.numpy(), data.test.numpy())
        if isinstance(self.scoring, CommonAccuracy):
            return self.scoring.common(predictions, y, own, data.common.numpy())
        return self.scoring.count(predictions, y, *own)

    def plain(self, weights: Weights, beside: Mapping[str, Any]) -> torch.nn.Module:
        """Return one model in layers of PyTorch Geometric, see `algorithms.tasks.training`.

        A file without `plain` gives its own module, which makes its propagation of the edges.

        Raises:
            ValueError: the weights are not those of the whole model.
        """
        module = self._load(weights, None)
        if not hasattr(self._file, "plain"):
            from algorithms.nn._shared.plain import OnEdges

            return OnEdges(module, self._file.PROPAGATION)
        found: torch.nn.Module = self._file.plain(module)
        return found

    @property
    def width(self) -> int:
        """Entries of an embedding: the last hidden width, or the classes without hidden layers."""
        (_, matrix), *_ = self._layout.head
        return matrix[0] if self._layout.stack and self._layout.base else self._shape[1]

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
        """Weights and masks after `epochs` passes, float32 (d,) each; see `MaskedTask`.

        Weight decay acts on the weights, as in `fit`, and not on the masks.

        Raises:
            ValueError: `epochs` or a penalty is negative, or weights, masks or data do not fit.
            FloatingPointError: training diverged to NaN or infinity.
        """
        import torch

        from algorithms.tasks import training

        if epochs < 0 or l1 < 0.0 or l2 < 0.0 or masks.shape != weights.shape:
            raise ValueError(
                "epochs, l1 and l2 must be 0 or more, and there is one mask for each weight"
            )
        if site.training is not None:
            self.check_training(site.training.unit)  # refuses: neighbours share their records
        model = training.Masked(self._load(weights, site), masks)
        rng = site.generator("fit")
        draws = torch.Generator().manual_seed(int(rng.integers(2**63)))
        weighing, masking = list(model.inner.parameters()), list(model.masks)
        steps = self._stepper(weighing)
        steps.also(masking, 0.0)
        if self._keeps:
            training.recall(steps, site)
        for _ in range(epochs if site.count else 0):
            for records in self._pass(site.data, rng):
                steps.zero_grad()
                outputs = self._outputs(model, site.data, records, draws, True)
                loss = self._loss(outputs, site.data, records) + model.penalty(l1, l2)
                loss.backward()  # type: ignore[no-untyped-call]
                steps.step()
        self._finite([*weighing, *masking])
        if self._keeps:
            training.remember(steps, site)
        return Fitted(*model.flat())

    def embed(self, weights: Weights, graph: GraphLike) -> Predictions:
        """Hidden activations below the head, before their ReLU, float32 (N, p).

        Raises:
            ValueError: weights or graph do not fit the model.
        """
        import torch

        from algorithms.tasks import training
        from algorithms.tasks.inputs import NodeData

        data = NodeData.from_graph(graph)
        module = training.below(self._load(weights, Site(data, seed=0)))
        with torch.no_grad():
            return self._numbers(self._outputs(module, data, None, torch.Generator(), False))

    def labelled(self, site: Site) -> Labelled:
        """Training nodes and their labels, see `FewShotTask`."""
        return _with_labels(site.data, self._records(site.data))

    def tuning(self, site: Site) -> Labelled:
        """Nodes of new classes that a model is tuned to, see `FewShotTask`."""
        return _with_labels(site.data, np.flatnonzero(site.data.tune.numpy()))

    def unlabelled(self, site: Site) -> Numbers:
        """All other nodes of the client's own graph, see `FewShotTask`."""
        data: NodeData = site.data
        return np.flatnonzero(~(data.train | data.tune | data.common).numpy())

    def slope_of(self, weights: Weights, site: Site, of: Labelled, seed: int) -> Weights:
        """Gradient of the mean loss over `of`, float32 (d,); see `FewShotTask`.

        Raises:
            ValueError: weights or data do not fit the model.
        """
        return self._derived(weights, site, of, seed, None)

    def curved(
        self, weights: Weights, along: Weights, site: Site, of: Labelled, seed: int
    ) -> Weights:
        """Hessian of the same loss times `along`, float32 (d,); see `FewShotTask`.

        Two passes back (Pearlmutter, Neural Computation 1994); no matrix of d x d is made.
        """
        return self._derived(weights, site, of, seed, along)

    def _derived(
        self, weights: Weights, site: Site, of: Labelled, seed: int, along: Weights | None
    ) -> Weights:
        """Return the gradient, or with `along` the Hessian times it."""
        import torch
        from torch.autograd import grad
        from torch.nn.functional import cross_entropy

        if site.training is not None:
            self.check_training(site.training.unit)  # refuses: neighbours share their records
        if not len(of.records):
            return np.zeros_like(weights)
        module = self._load(weights, site)
        draws = torch.Generator().manual_seed(seed)
        outputs = self._of(module, site.data, of.records, draws)
        parameters = list(module.parameters())
        loss = cross_entropy(outputs, torch.from_numpy(of.labels))
        found = grad(loss, parameters, create_graph=along is not None)
        if along is not None:
            flat = torch.cat([part.reshape(-1) for part in found])
            found = grad(flat @ torch.tensor(along), parameters, materialize_grads=True)
        slope: Weights = torch.cat([part.reshape(-1) for part in found]).detach().numpy()
        return slope

    def _of(
        self, module: torch.nn.Module, data: NodeData, records: Numbers, draws: torch.Generator
    ) -> Tensor:
        """Return logits of a few nodes, in training, from no more of the graph than they see."""
        from algorithms.tasks.inputs import heard

        around = heard(self._file, data, records, hops=self._shape[3], draws=draws)
        logits: Tensor = module(around.x, around.propagation, draws, True)
        return logits[around.places]

    def _build(self) -> nn.GraphModel:
        return self._file.build(*self._shape)

    def _declared(self) -> Layout:
        return nn.layout(self._file, *self._shape)

    def _check(self, data: NodeData) -> None:
        if data.features != self.spec.features:
            raise ValueError(
                "the site's features are not as many as the model's inputs; all clients need the "
                "same feature columns"
            )
        if bool((data.y >= self.spec.classes).any()):
            raise ValueError(
                "the site has a label outside the model's classes; all clients need the same list "
                "of classes"
            )

    def _records(self, data: NodeData) -> Numbers:
        return np.flatnonzero(data.train.numpy())

    def _outputs(
        self,
        module: torch.nn.Module,
        data: NodeData,
        records: Numbers | None,
        draws: torch.Generator,
        training: bool,
    ) -> Tensor:
        if training and records is not None and hasattr(self._file, "FAN_OUT"):
            return self._of(module, data, records, draws)
        return self._on_graph(module, data, records, draws, training)

    def _on_graph(
        self,
        module: torch.nn.Module,
        data: NodeData,
        records: Numbers | None,
        draws: torch.Generator,
        training: bool,
    ) -> Tensor:
        """Return logits of records whose model sees the whole graph."""
        import torch

        matrix = data.propagation(self._file.PROPAGATION)
        logits: Tensor = module(data.x, matrix, draws, training, *data.given)
        return logits if records is None else logits[torch.from_numpy(records)]

    def _loss(self, outputs: Tensor, data: NodeData, records: Numbers) -> Tensor:
        import torch

        return torch.nn.functional.cross_entropy(outputs, data.y[torch.from_numpy(records)])

    def _activate(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(dim=1)


def _with_labels(data: NodeData, records: Numbers) -> Labelled:
    return Labelled(records, data.y.numpy()[records])
