"""Prediction of ratings: who would rate what, and how. One bipartite graph per client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from algorithms import nn
from algorithms.nn import rating_model
from algorithms.nn._shared.layouts import Inputs, Layout, Scale, width
from algorithms.tasks import Batch, DataSpec, Mixed, Predictions, Site, Weights
from algorithms.tasks.flat import Numbers, Optimiser, UserSteps
from algorithms.tasks.scores import Errors, ErrorScore

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.nn._shared.ratings import RatingModel
    from algorithms.tasks.inputs import RatingsData

__all__ = ["RatingTask"]


class RatingTask(UserSteps):
    """Prediction of ratings with one of the rating models of `algorithms.nn`.

    The loss is the squared error on ratings scaled to [0, 1] by the scale that `spec` names;
    predictions are ratings on that scale, clipped to it, shape (M, 1), one for every rating of the
    site, whatever its role.

    Where the model has a row for every user and item (`dot`), a site builds and trains only the
    rows of its own users and items. All others have no gradient; what weight decay would do to
    them is done at once. So a step costs as much as the site's ratings, not as the catalogue.

    Args:
        spec: what is known of the data in public; its `features` are not read.
        model: name of a rating model in `algorithms/nn`.
        hidden: width of a user's and an item's embedding.
        layers: number of graph layers, where the model has them.
        dropout: rate on hidden layers, in [0, 1), where the model has them.
        inputs: what a graph model is told of a node, see `algorithms.nn._shared.ratings.Inputs`.
        lr, weight_decay, optimiser, batch, keep_moments: see `Sized`.

    Raises:
        ValueError: the data has no ratings, the model is unknown or an option is out of range.
    """

    def __init__(  # noqa: PLR0913 - a model's settings, all by name
        self,
        spec: DataSpec,
        *,
        model: str = "dot",
        hidden: int = 32,
        layers: int = 2,
        dropout: float = 0.0,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
        optimiser: Optimiser = "adamw",
        batch: int | None = None,
        keep_moments: bool = False,
        inputs: Inputs = "degree",
    ) -> None:
        if spec.task != "rating":
            raise ValueError(
                f"RatingTask needs a rating task; {spec.name!r} is a {spec.task!r} task"
            )
        if hidden < 1 or layers < 1 or not 0.0 <= dropout < 1.0:
            raise ValueError(
                "a model option is out of range; needed are hidden >= 1, layers >= 1, "
                "0 <= dropout < 1"
            )
        width(inputs)
        self._file = rating_model(model)
        self._model: Any = {
            "hidden": hidden,
            "layers": layers,
            "dropout": dropout,
            "inputs": inputs,
        }
        self._training: Any = {
            "lr": lr,
            "weight_decay": weight_decay,
            "optimiser": optimiser,
            "batch": batch,
            "keep_moments": keep_moments,
        }
        self._of_site: dict[tuple[int, int], _SiteTask] = {}  # by how many users and items
        self._range = spec.highest - spec.lowest
        self._scoring = Errors(spec.lowest, spec.highest, squared=self.alone)
        super().__init__(spec, **self._training)

    @property
    def alone(self) -> bool:
        """Whether the model is for sites of one user, whose part is the head."""
        return bool(getattr(self._file, "ALONE", False))

    @property
    def scoring(self) -> Errors:
        """MAE and RMSE."""
        return self._scoring

    def initial(self, rng: np.random.Generator) -> Weights:
        """The model's own starting values, float32 (d,)."""
        module = cast("RatingModel", self.module())
        return module.initial(rng, super().initial)

    def score(self, predictions: Predictions, site: Site) -> ErrorScore:
        """Errors over the validation and the test ratings.

        Raises:
            ValueError: there is not one prediction a rating.
        """
        data: RatingsData = site.data
        if predictions.shape != (len(data.rating), 1):
            raise ValueError(
                "predictions must have one row a rating and one column; "
                "score what `predict` returned for the same site"
            )
        rating, val, test = data.rating.numpy(), data.val.numpy(), data.test.numpy()
        return self._scoring.count(predictions[:, 0], rating, val, test)

    def fit(
        self,
        weights: Weights,
        site: Site,
        *,
        epochs: int,
        pull: float = 0.0,
        base_only: bool = False,
    ) -> Weights:
        """Weights after `epochs` passes, float32 (d,), see `FlatTask.fit`.

        Raises:
            ValueError: an argument is out of range or does not fit; others' moments are needed.
            FloatingPointError: training diverged to NaN or infinity.
        """
        decays = self._optimiser == "adam" and self._weight_decay > 0.0
        if self._keeps and (pull > 0.0 or decays):
            raise ValueError(
                "a rating task keeps moments of its own rows only, and a pull or adam's decay "
                "moves all; turn off keep_moments, the pull or the decay"
            )
        if base_only and pull:
            raise ValueError("a rating task pulls all of its weights or none; take mu = 0")
        near = self._near(site, weights)
        if near is None or site.count == 0:
            return super().fit(weights, site, epochs=epochs, pull=pull)
        fitted = near.task.fit(weights[near.rows], site, epochs=epochs, pull=pull)
        steps = epochs * (-(-len(self._records(site.data)) // self._batch) if self._batch else 1)
        whole = self._idle(weights, near.rows, steps, pull)
        whole[near.rows] = fitted
        return whole

    def gradient(self, weights: Weights, site: Site, batch: Batch) -> Weights:
        """Gradient of the batch's mean loss, float32 (d,), see `FlatTask.gradient`.

        Raises:
            ValueError: weights or data do not fit the model.
        """
        near = self._near(site, weights)
        if near is None:
            return super().gradient(weights, site, batch)
        found = near.task.gradient(weights[near.rows], site, batch)
        return self._widened(found, near.rows, weights)

    def mixed(
        self, personal: Weights, shared: Weights, alpha: float, site: Site, batch: Batch
    ) -> Mixed:
        """Gradients of the mean loss of mixed outputs, see `FlatTask.mixed`.

        Raises:
            ValueError: weights or data do not fit the model.
        """
        near = self._near(site, personal, shared)
        if near is None:
            return super().mixed(personal, shared, alpha, site, batch)
        found = near.task.mixed(personal[near.rows], shared[near.rows], alpha, site, batch)
        return Mixed(
            personal=self._widened(found.personal, near.rows, personal),
            shared=self._widened(found.shared, near.rows, shared),
            alpha=found.alpha,
        )

    def predict(self, weights: Weights, site: Site) -> Predictions:
        """Predictions for every rating of the site, float32 (M, 1), without dropout.

        Raises:
            ValueError: weights or data do not fit the model.
        """
        near = self._near(site, weights)
        if near is None:
            return super().predict(weights, site)
        return near.task.predict(weights[near.rows], site)

    def predict_mixed(
        self, personal: Weights, shared: Weights, alpha: float, site: Site
    ) -> Predictions:
        """Predictions from alpha h_v + (1 - alpha) h_w, mixed before they are clipped, (M, 1).

        Raises:
            ValueError: weights or data do not fit the model.
        """
        near = self._near(site, personal, shared)
        if near is None:
            return super().predict_mixed(personal, shared, alpha, site)
        return near.task.predict_mixed(personal[near.rows], shared[near.rows], alpha, site)

    def plain(self, weights: Weights, beside: Mapping[str, Any]) -> torch.nn.Module:
        """Return one model, from 0 to 1, see `algorithms.tasks.training`; raises ValueError."""
        from algorithms.nn._shared.plain import PlainRatings
        from algorithms.nn._shared.ratings import neighbours

        model = cast("RatingModel", self._load(weights, None))
        if (made := getattr(self._file, "plain", None)) is not None:
            return cast("torch.nn.Module", made(model, self._scale))
        told = (beside["items"], beside["vectors"], self.spec.items) if beside else None
        near = None if told is None else neighbours(*told)
        return PlainRatings(model, self._scale, near)

    def finished(self, module: torch.nn.Module) -> torch.nn.Module:
        """Return what brings a module's outputs to the scale."""
        from algorithms.nn._shared.plain import Clipped

        return Clipped(module, self._scale)

    @property
    def _scale(self) -> Scale:

        spec = self.spec
        return Scale(1 if self.alone else spec.users, spec.items, spec.lowest, spec.highest)

    def _near(self, site: Site, *vectors: Weights) -> _Near | None:
        """The model of the site's own rows; None if it needs all, or `FlatTask` is to refuse."""
        data: RatingsData = site.data
        self._check(data)
        rows = self._file.rows((data.users, data.items), data.sizes, self._model["hidden"])
        fit = all(v.shape == (self.size,) and v.dtype == np.float32 for v in vectors)
        if rows is None or not fit or not len(data.rating):
            return None
        sizes = len(data.users), len(data.items)
        if sizes not in self._of_site:
            spec = replace(self.spec, users=sizes[0], items=sizes[1])
            made = _SiteTask(spec, model=self._file.NAME, **self._model, **self._training)
            self._of_site[sizes] = made
        return _Near(self._of_site[sizes], rows)

    def _widened(self, found: Weights, rows: Numbers, weights: Weights) -> Weights:
        """A gradient of all weights from that of `rows`; the loss does not touch the others."""
        decay = np.float32(self._weight_decay)
        whole = decay * weights if decay else np.zeros_like(weights)
        whole[rows] = found
        return whole

    def _idle(self, weights: Weights, rows: Numbers, steps: int, pull: float) -> Weights:
        """Weights that no record touches, after so many steps; at `rows` anything."""
        decay = self._weight_decay
        if decay == 0.0:
            return weights.copy()
        alone = pull == 0.0 and self._optimiser == "adamw"
        if alone or self._optimiser == "sgd":  # linear: every weight shrinks alike
            return weights * self._steps_alone(np.ones(1, np.float32), steps, pull)
        others = np.ones(len(weights), bool)
        others[rows] = False
        whole = weights.copy()
        whole[others] = self._steps_alone(weights[others], steps, pull)
        return whole

    def _steps_alone(self, start: Weights, steps: int, pull: float) -> Weights:
        from algorithms.tasks.training import unguided

        return unguided(self._stepper, start, steps, pull)

    def _build(self) -> RatingModel:
        return self._file.build(self.spec.users, self.spec.items, **self._model)

    def _declared(self) -> Layout:
        return nn.layout(self._file, self.spec.users, self.spec.items, **self._model)

    def _check(self, data: RatingsData) -> None:
        import torch

        if self._sizes(data) != (self.spec.users, self.spec.items):
            raise ValueError(
                "the site counts users or items differently than the model; all clients need the "
                "same DataSpec.users and DataSpec.items"
            )
        scale = torch.tensor([self.spec.lowest, self.spec.highest], dtype=torch.float32)
        if bool(((data.rating < scale[0]) | (data.rating > scale[1])).any()):
            raise ValueError(
                "the site has a rating outside the scale; all clients need the same scale, and "
                "DataSpec.lowest and DataSpec.highest are to say which"
            )

    def _sizes(self, data: RatingsData) -> tuple[int, int]:
        return data.sizes

    def _records(self, data: RatingsData) -> Numbers:
        return np.flatnonzero(data.train.numpy())

    def _outputs(
        self,
        module: torch.nn.Module,
        data: RatingsData,
        records: Numbers | None,
        draws: torch.Generator,
        training: bool,
    ) -> Tensor:
        import torch

        user, item = data.user, data.item
        if records is not None:
            chosen = torch.from_numpy(records)
            user, item = user[chosen], item[chosen]
        graph = data.graph.on_scale(self.spec.lowest, self._range)
        outputs: Tensor = module(graph, user, item, draws, training)
        return outputs

    def _loss(self, outputs: Tensor, data: RatingsData, records: Numbers) -> Tensor:
        import torch

        scaled = (data.rating[torch.from_numpy(records)] - self.spec.lowest) / self._range
        return torch.nn.functional.mse_loss(outputs[:, 0], scaled)

    def _activate(self, outputs: Tensor) -> Tensor:
        ratings = self.spec.lowest + self._range * outputs
        return ratings.clamp(self.spec.lowest, self.spec.highest)


class _SiteTask(RatingTask):
    """The same task with a model of one site's own users and items."""

    def _near(self, site: Site, *vectors: Weights) -> None:
        return None

    def _sizes(self, data: RatingsData) -> tuple[int, int]:
        return len(data.users), len(data.items)


class _Near(NamedTuple):
    """A site's own part of the model, and its places in the whole one's flat vector."""

    task: _SiteTask
    rows: Numbers
