"""What all tasks share: torch modules behind flat numpy vectors, trained and stepped on batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from algorithms.tasks import Batch, DataSpec, Mixed, Predictions, Weights, _optimisers, _private
from algorithms.tasks._optimisers import OPTIMISERS, Optimiser, recall, remember
from algorithms.tasks.private import COUPLED, UnsupportedTraining
from algorithms.tasks.site import Site
from protocols.messages import SumMessage

__all__ = ["FlatTask", "Optimiser"]

Numbers = npt.NDArray[np.int64]


class FlatTask(ABC):
    """A torch model and its training, behind flat float32 vectors.

    Nothing of the optimiser ever travels. The same weights, site and draws give the same bits for
    one number of torch threads, which is the caller's to set.

    Args:
        spec: what is known of the data in public.
        lr: step size, above 0.
        weight_decay: L2 coefficient on all parameters: decoupled under ``adamw`` (Loshchilov and
            Hutter, ICLR 2019), in the gradient under ``sgd`` and ``adam``; at least 0.
        optimiser: what `fit` steps with. `gradient` and `mixed` are for plain gradient descent.
        batch: records in a batch; None takes all training records at once.
        keep_moments: whether what ``adam`` and ``adamw`` remember stays in the site's memory, as
            "moments", from one fit to the next; otherwise it starts anew in every fit. In rounds of
            a single step one that starts anew moves every weight by a full lr.

    Raises:
        ValueError: an option is out of range.
    """

    def __init__(
        self,
        spec: DataSpec,
        *,
        lr: float,
        weight_decay: float,
        optimiser: Optimiser = "adamw",
        batch: int | None = None,
        keep_moments: bool = False,
    ) -> None:
        if lr <= 0.0 or weight_decay < 0.0 or (batch is not None and batch < 1):
            raise ValueError("out of range; needed are lr > 0, weight_decay >= 0, batch >= 1")
        if optimiser not in OPTIMISERS:
            known = ", ".join(OPTIMISERS)
            raise ValueError(f"no optimiser is called {optimiser!r}; known are {known}")
        self._spec, self._lr, self._weight_decay = spec, lr, weight_decay
        self._optimiser, self._batch, self._keeps = optimiser, batch, keep_moments
        module = self._build()
        self._size = sum(p.numel() for p in module.parameters())
        self._base = self._size - sum(p.numel() for p in self._head(module))

    @property
    def spec(self) -> DataSpec:
        """What is known of the data in public."""
        return self._spec

    @property
    def size(self) -> int:
        """Number of parameters, d."""
        return self._size

    @property
    def base(self) -> int:
        """Number of base parameters, which come first; the head's follow."""
        return self._base

    def layout(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Name and shape of every parameter, in the order of the flat vector; public."""
        return tuple((n, tuple(p.shape)) for n, p in self._build().named_parameters())

    @property
    def lr(self) -> float:
        """The step size."""
        return self._lr

    # What a task must say about its model and data.

    @abstractmethod
    def _build(self) -> torch.nn.Module:
        """Return a new, uninitialised module: one per call, as clients may train in parallel."""

    @abstractmethod
    def _head(self, module: torch.nn.Module) -> list[torch.nn.Parameter]:
        """Return the module's last parameters, which FedPer keeps at the client."""

    @abstractmethod
    def _check(self, data: Any) -> None:
        """Raise ValueError unless a site's data fits the model."""

    def _ready(self, site: Site) -> None:  # noqa: B027 - most tasks need nothing more
        """Make ready at the site what outputs are computed from beside its data."""

    @abstractmethod
    def _records(self, data: Any) -> Numbers:
        """Return the numbers of the training records, ascending."""

    @abstractmethod
    def _outputs(
        self,
        module: torch.nn.Module,
        data: Any,
        records: Numbers | None,
        draws: torch.Generator,
        training: bool,
    ) -> Tensor:
        """Return outputs before the activation, one row for each of `records` (None: for all)."""

    @abstractmethod
    def _loss(self, outputs: Tensor, data: Any, records: Numbers) -> Tensor:
        """Return the mean loss of the records, a scalar."""

    @abstractmethod
    def _activate(self, outputs: Tensor) -> Tensor:
        """Return predictions from outputs."""

    def _per_record(self, module: torch.nn.Module, data: Any) -> _private.PullBack:
        """Return what gives one gradient a record; only for tasks that `check_training` admits."""
        raise UnsupportedTraining(f"{type(self).__name__} gives no gradients record by record")

    @abstractmethod
    def score(self, predictions: Predictions, site: Site) -> SumMessage:
        """Count over the site's validation and test records."""

    # What algorithms call.

    def check_training(self, unit: str) -> None:
        """Raise UnsupportedTraining unless clipped gradients of single records hide this unit."""
        kind = self._spec.task
        if unit != kind or COUPLED[kind]:
            raise UnsupportedTraining(
                f"a {kind} task cannot be trained with the records of one {unit} hidden: "
                + (COUPLED[kind] or "its records are of another kind")
            )

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

    def fit(self, weights: Weights, site: Site, *, epochs: int, pull: float = 0.0) -> Weights:
        """Weights after `epochs` passes, float32 (d,); `weights` is not changed.

        With `pull` > 0 every gradient has the proximal term pull (w - weights) added (Li et al.,
        MLSys 2020, FedProx). A site without training records returns a copy of the weights.

        Raises:
            ValueError: `epochs` or `pull` is negative, or weights or data do not fit the model.
            FloatingPointError: training diverged to NaN or infinity.
        """
        if epochs < 0 or pull < 0.0:
            raise ValueError("epochs and pull must be 0 or more")
        module = self._load(weights, site)
        rng = site.generator("fit")
        draws = torch.Generator().manual_seed(int(rng.integers(2**63)))
        parameters = list(module.parameters())
        steps = self._stepper(parameters)
        if self._keeps:
            recall(steps, site)
        if (noised := self._noised(module, site)) is not None:
            _private.descend(noised, parameters, steps, pull)
            return self._left(steps, parameters, site)
        if site.count == 0:
            return weights.copy()
        start = [parameter.detach().clone() for parameter in parameters] if pull else []
        for _ in range(epochs):
            for records in self._pass(site.data, rng):
                steps.zero_grad()
                outputs = self._outputs(module, site.data, records, draws, True)
                self._loss(outputs, site.data, records).backward()  # type: ignore[no-untyped-call]
                for parameter, before in zip(parameters, start, strict=False):
                    if parameter.grad is not None:
                        parameter.grad.add_(parameter.detach() - before, alpha=pull)
                steps.step()
        return self._left(steps, parameters, site)

    def _left(
        self, steps: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], site: Site
    ) -> Weights:
        if self._keeps:
            remember(steps, site)
        return self._finite(parameters)

    def _finite(self, parameters: list[torch.nn.Parameter]) -> Weights:
        fitted: Weights = parameters_to_vector(parameters).detach().numpy()
        if not np.isfinite(fitted).all():
            raise FloatingPointError(
                "local training diverged: the weights are no longer finite, most likely because "
                "the step size is too large for these features; lower model.lr or scale the "
                "features"
            )
        return fitted

    def _stepper(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return _optimisers.optimiser(self._optimiser, parameters, self._lr, self._weight_decay)

    def _pass(self, data: Any, rng: np.random.Generator) -> Iterator[Numbers]:
        """One pass over the training records, in a new order if they are cut into batches."""
        records = self._records(data)
        if self._batch is None or len(records) <= self._batch:
            yield records
            return
        order = rng.permutation(records)
        yield from np.split(order, range(self._batch, len(order), self._batch))

    def batches(self, site: Site) -> Iterator[Batch]:
        """Batches without end, in the order that `fit` takes them; none without records."""
        if site.training is not None:
            yield from _private.batches(site)
        rng = site.generator("fit")
        rng.integers(2**63)  # where `fit` draws its dropout
        while site.count:
            for records in self._pass(site.data, rng):
                seed = site.generator("batch").integers(2**63)
                yield Batch(records, int(seed))

    def gradient(self, weights: Weights, site: Site, batch: Batch) -> Weights:
        """Gradient of the batch's mean loss, float32 (d,), with weight decay as an L2 term.

        Raises:
            ValueError: weights or data do not fit the model.
        """
        module = self._load(weights, site)
        if (noised := self._noised(module, site)) is not None:
            return noised.gradient() + np.float32(self._weight_decay) * weights
        loss = self._loss(self._drawn(module, site, batch), site.data, batch.records)
        return self._decayed(_slopes(loss, list(module.parameters())), weights)

    def mixed(
        self, personal: Weights, shared: Weights, alpha: float, site: Site, batch: Batch
    ) -> Mixed:
        """Gradients of the mean loss of alpha h_v + (1 - alpha) h_w, see `Mixed`.

        Raises:
            ValueError: weights or data do not fit the model.
        """
        modules = [self._load(weights, site) for weights in (personal, shared)]
        first, second = (self._noised(module, site) for module in modules)
        if first is not None and second is not None:
            found, decay = _private.mixed(first, second, alpha), np.float32(self._weight_decay)
            personal, shared = found.personal + decay * personal, found.shared + decay * shared
            return Mixed(personal=personal, shared=shared, alpha=found.alpha)
        ours, theirs = (self._drawn(module, site, batch) for module in modules)
        share = torch.tensor(alpha, dtype=torch.float32, requires_grad=True)
        mixture = share * ours + (1.0 - share) * theirs
        loss = self._loss(mixture, site.data, batch.records)
        own, common = (list(module.parameters()) for module in modules)
        towards, *parts = _slopes(loss, [share, *own, *common])  # one way back for all three
        return Mixed(
            personal=self._decayed(parts[: len(own)], personal),
            shared=self._decayed(parts[len(own) :], shared),
            alpha=float(towards),
        )

    def _noised(self, module: torch.nn.Module, site: Site) -> _private.Noised | None:
        """Return what takes noised gradients of this model; None where training is not private."""
        if site.training is None:
            return None
        self.check_training(site.training.unit)
        data = site.data
        return _private.Noised(
            steps=site.training,
            records=self._records(data),
            size=self.size,
            outputs=lambda records: self._whole(module, data, records),
            loss=lambda outputs, records: self._loss(outputs, data, records),
            back=self._per_record(module, data),
        )

    def _whole(self, module: torch.nn.Module, data: Any, records: Numbers | None) -> Tensor:
        """Return outputs without dropout and without gradients."""
        with torch.no_grad():
            return self._outputs(module, data, records, torch.Generator(), False)

    def _drawn(self, module: torch.nn.Module, site: Site, batch: Batch) -> Tensor:
        draws = torch.Generator().manual_seed(batch.seed)
        return self._outputs(module, site.data, batch.records, draws, True)

    def _decayed(self, parts: Sequence[Tensor], weights: Weights) -> Weights:
        found: Weights = torch.cat([part.reshape(-1) for part in parts]).numpy()
        return found + np.float32(self._weight_decay) * weights

    def predict(self, weights: Weights, site: Site) -> Predictions:
        """Predictions for every record of the site, float32, without dropout.

        Raises:
            ValueError: weights or data do not fit the model.
        """
        with torch.no_grad():
            return self._numbers(self._activate(self._all(weights, site)))

    def predict_mixed(
        self, personal: Weights, shared: Weights, alpha: float, site: Site
    ) -> Predictions:
        """Predictions from alpha h_v + (1 - alpha) h_w, mixed before the activation.

        Raises:
            ValueError: weights or data do not fit the model.
        """
        with torch.no_grad():
            own, common = self._all(personal, site), self._all(shared, site)
            return self._numbers(self._activate(alpha * own + (1.0 - alpha) * common))

    def _all(self, weights: Weights, site: Site) -> Tensor:
        return self._whole(self._load(weights, site), site.data, None)

    def _numbers(self, predictions: Tensor) -> Predictions:
        found: Predictions = predictions.numpy()
        return found

    def _load(self, weights: Weights, site: Site | None) -> torch.nn.Module:
        if weights.shape != (self.size,) or weights.dtype != np.float32:
            raise ValueError(
                f"the model has {self.size} float32 parameters and was given "
                f"{weights.dtype} of shape {weights.shape}; both ends need the same model options"
            )
        if site is not None:  # None: the module is for use elsewhere
            self._check(site.data)
            self._ready(site)
        module = self._build()
        # A copy in torch's aligned memory: equal weights give equal bits wherever numpy had them.
        vector_to_parameters(torch.tensor(weights), module.parameters())
        return module


def _slopes(loss: Tensor, of: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the loss's gradients; zeros for what it does not depend on."""
    return torch.autograd.grad(loss, of, allow_unused=True, materialize_grads=True)
