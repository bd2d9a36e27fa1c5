"""Torch modules behind flat numpy vectors, trained and stepped on batches: what all tasks share.

Torch is imported by the methods that compute: a plan needs `Sized` alone, which knows a task's
options and how many parameters its model has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from algorithms import nn
from algorithms.nn._shared.layouts import Layout, Shapes, entries
from algorithms.tasks import (
    COUPLED,
    Batch,
    DataSpec,
    Mixed,
    Moments,
    Predictions,
    Site,
    UnsupportedTraining,
    Weights,
)
from protocols.messages import SumMessage

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.tasks import training
    from algorithms.tasks.training import Stepper

__all__ = ["Descended", "FlatTask", "Numbers", "Optimiser", "Sized", "UserSteps"]

Optimiser = Literal["adamw", "adam", "sgd"]


class Sized(ABC):
    """A model's flat vector of float32, before anybody trains it.

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
        if optimiser not in get_args(Optimiser):
            known = ", ".join(get_args(Optimiser))
            raise ValueError(f"no optimiser is called {optimiser!r}; known are {known}")
        self._spec, self._lr, self._weight_decay = spec, lr, weight_decay
        self._optimiser, self._batch, self._keeps = optimiser, batch, keep_moments
        self._layout = self._declared()
        self._size, self._base = self._layout.size, entries(self._layout.base)

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

    def layout(self) -> Shapes:
        """Name and shape of every parameter, in the order of the flat vector; public."""
        return self._layout.whole

    @property
    def lr(self) -> float:
        """The step size."""
        return self._lr

    @abstractmethod
    def _declared(self) -> Layout:
        """Return the module's parameters, as its file says, without building one."""

    def check_training(self, unit: str) -> None:
        """Raise UnsupportedTraining unless clipped gradients of single records hide this unit."""
        kind = self._spec.task
        if unit != kind or COUPLED[kind]:
            raise UnsupportedTraining(
                f"a {kind} task cannot be trained with the records of one {unit} hidden: "
                + (COUPLED[kind] or "its records are of another kind")
            )

    def initial(self, rng: np.random.Generator) -> Weights:
        """Starting weights, float32 (d,), drawn from `rng` alone."""
        return self._unmade(rng)

    def _unmade(self, rng: np.random.Generator) -> Weights:
        """Glorot-uniform matrices (Glorot and Bengio, AISTATS 2010, eq. 16) and zero biases, (d,).

        Of parameters that no module makes. Drawn with numpy, so that torch's global stream is
        neither read nor moved.
        """
        parts = []
        for _, shape in self._layout.whole:
            bound = np.sqrt(6.0 / sum(shape)) if len(shape) > 1 else 0.0
            parts.append(rng.uniform(-bound, bound, size=shape).astype(np.float32).ravel())
        return np.concatenate(parts)


Numbers = npt.NDArray[np.int64]


class FlatTask(Sized):
    """A torch model and its training, behind flat float32 vectors.

    Nothing of the optimiser ever travels. The same weights, site and draws give the same bits for
    one number of torch threads, which is the caller's to set. Torch is imported where something is
    computed, and not before: a plan is printed without it.
    """

    # What a task must say about its model and data.

    @abstractmethod
    def _build(self) -> torch.nn.Module:
        """Return a new, uninitialised module: one per call, as clients may train in parallel."""

    def module(self) -> torch.nn.Module:
        """Return a new module; one from outside our folder with the same buffers in every call."""
        if (making := nn.maker(getattr(self, "_file", None))) is None:
            return self._build()
        with making(0):
            return self._build()

    def initial(self, rng: np.random.Generator) -> Weights:
        """Starting weights, float32 (d,), from `rng` alone.

        A module from outside our folder starts from what it makes (`algorithms.nn._shared.
        own_start`); what it leaves open, and all that ours have, is drawn here.
        """
        drawn = super().initial(rng)
        if (making := nn.maker(getattr(self, "_file", None))) is None:
            return drawn
        from algorithms.nn._shared.modules import started

        with making(int(rng.integers(2**63))):
            made = self._build()
        return started(made, drawn)

    def moved_buffers(self, site: Site) -> list[str]:
        """Return names of buffers that a forward pass in training changes: nobody adds them up."""
        import torch

        from algorithms.nn._shared.modules import moved_buffers

        module = self._load(self.initial(np.random.default_rng(0)), site)
        records, draws = self._records(site.data), torch.Generator().manual_seed(0)
        return moved_buffers(module, lambda: self._outputs(module, site.data, records, draws, True))

    @abstractmethod
    def _check(self, data: Any) -> None:
        """Raise ValueError unless a site's data fits the model."""

    def _ready(self, site: Site) -> None:
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

    def _per_record(self, module: torch.nn.Module, data: Any) -> training.PullBack:
        """Return what gives one gradient a record; only for tasks that `check_training` admits."""
        raise UnsupportedTraining(f"{type(self).__name__} gives no gradients record by record")

    @abstractmethod
    def score(self, predictions: Predictions, site: Site) -> SumMessage:
        """Count over the site's validation and test records."""

    # What algorithms call.

    def fit(
        self,
        weights: Weights,
        site: Site,
        *,
        epochs: int,
        pull: float = 0.0,
        base_only: bool = False,
    ) -> Weights:
        """Weights after `epochs` passes, float32 (d,); `weights` is not changed.

        With `pull` > 0 every gradient has the proximal term pull (w - weights) added (Li et al.,
        MLSys 2020, FedProx), with `base_only` those of the base alone. A site without training
        records returns a copy of the weights.

        Raises:
            ValueError: `epochs` or `pull` is negative, or weights or data do not fit the model.
            FloatingPointError: training diverged to NaN or infinity.
        """
        import torch

        from algorithms.tasks import training

        if epochs < 0 or pull < 0.0:
            raise ValueError("epochs and pull must be 0 or more")
        module = self._load(weights, site)
        rng = site.generator("fit")
        draws = torch.Generator().manual_seed(int(rng.integers(2**63)))
        parameters = list(module.parameters())
        pulled = len(self._layout.base) if base_only else len(parameters)
        steps = self._stepper(parameters)
        if self._keeps:
            training.recall(steps, site)
        if (noised := self._noised(module, site)) is not None:
            training.descend(noised, parameters, steps, pull, pulled)
            return self._left(steps, parameters, site)
        if site.count == 0:
            return weights.copy()
        start = [one.detach().clone() for one in parameters[:pulled]] if pull else []
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

    def _left(self, steps: Stepper, parameters: list[torch.nn.Parameter], site: Site) -> Weights:
        from algorithms.tasks.training import remember

        if self._keeps:
            remember(steps, site)
        return self._finite(parameters)

    def _finite(self, parameters: list[torch.nn.Parameter]) -> Weights:
        from torch.nn.utils import parameters_to_vector

        fitted: Weights = parameters_to_vector(parameters).detach().numpy()
        if not np.isfinite(fitted).all():
            raise FloatingPointError(
                "local training diverged: the weights are no longer finite, most likely because "
                "the step size is too large for these features; lower model.lr or scale the "
                "features"
            )
        return fitted

    def _stepper(self, parameters: list[torch.nn.Parameter]) -> Stepper:
        from algorithms.tasks.training import Stepper

        return Stepper(self._optimiser, parameters, self._lr, self._weight_decay)

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
        from algorithms.tasks import training

        if site.training is not None:
            yield from training.batches(site)
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
        import torch

        from algorithms.tasks import training

        modules = [self._load(weights, site) for weights in (personal, shared)]
        first, second = (self._noised(module, site) for module in modules)
        if first is not None and second is not None:
            found, decay = training.mixed(first, second, alpha), np.float32(self._weight_decay)
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

    def _noised(self, module: torch.nn.Module, site: Site) -> training.Noised | None:
        """Return what takes noised gradients of this model; None where training is not private."""
        from algorithms.tasks import training

        if site.training is None:
            return None
        self.check_training(site.training.unit)
        data = site.data
        return training.Noised(
            steps=site.training,
            records=self._records(data),
            size=self.size,
            outputs=lambda records: self._whole(module, data, records),
            loss=lambda outputs, records: self._loss(outputs, data, records),
            back=self._per_record(module, data),
        )

    def _whole(self, module: torch.nn.Module, data: Any, records: Numbers | None) -> Tensor:
        """Return outputs without dropout and without gradients."""
        import torch

        with torch.no_grad():
            return self._outputs(module, data, records, torch.Generator(), False)

    def _drawn(self, module: torch.nn.Module, site: Site, batch: Batch) -> Tensor:
        import torch

        draws = torch.Generator().manual_seed(batch.seed)
        return self._outputs(module, site.data, batch.records, draws, True)

    def _decayed(self, parts: Sequence[Tensor], weights: Weights) -> Weights:
        import torch

        found: Weights = torch.cat([part.reshape(-1) for part in parts]).numpy()
        return found + np.float32(self._weight_decay) * weights

    def predict(self, weights: Weights, site: Site) -> Predictions:
        """Predictions for every record of the site, float32, without dropout.

        Raises:
            ValueError: weights or data do not fit the model.
        """
        import torch

        with torch.no_grad():
            return self._numbers(self._activate(self._all(weights, site)))

    def predict_mixed(
        self, personal: Weights, shared: Weights, alpha: float, site: Site
    ) -> Predictions:
        """Predictions from alpha h_v + (1 - alpha) h_w, mixed before the activation.

        Raises:
            ValueError: weights or data do not fit the model.
        """
        import torch

        with torch.no_grad():
            own, common = self._all(personal, site), self._all(shared, site)
            return self._numbers(self._activate(alpha * own + (1.0 - alpha) * common))

    def _all(self, weights: Weights, site: Site) -> Tensor:
        return self._whole(self._load(weights, site), site.data, None)

    def _numbers(self, predictions: Tensor) -> Predictions:
        found: Predictions = predictions.numpy()
        return found

    def _load(self, weights: Weights, site: Site | None) -> torch.nn.Module:
        import torch
        from torch.nn.utils import vector_to_parameters

        if weights.shape != (self.size,) or weights.dtype != np.float32:
            raise ValueError(
                f"the model has {self.size} float32 parameters and was given "
                f"{weights.dtype} of shape {weights.shape}; both ends need the same model options"
            )
        if site is not None:  # None: the module is for use elsewhere
            self._check(site.data)
            self._ready(site)
        module = self.module()
        # A copy in torch's aligned memory: equal weights give equal bits wherever numpy had them.
        vector_to_parameters(torch.tensor(weights), module.parameters())
        return module


def _slopes(loss: Tensor, of: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the loss's gradients; zeros for what it does not depend on."""
    import torch

    return torch.autograd.grad(loss, of, allow_unused=True, materialize_grads=True)


class Descended(NamedTuple):
    """What a client is left with.

    Attributes:
        slope: gradient of L_u in what is shared, (base,).
        head: the user's part, (size - base,).
    """

    slope: Weights
    head: Weights


class UserSteps(FlatTask):
    """A task that can train the head of its model alone, and ask for the base's gradient then.

    The loss is L_u = 1/2 Σ_j (r̂_uj - r_uj)² over the site's training ratings, on [0, 1]. A step is
    lr / n (dL_u + decay x part), with n their number. The shared gradient is that of the last step,
    taken where it begins: with one step both are gradients at the same weights.
    """

    @abstractmethod
    def _near(self, site: Site, *vectors: Weights) -> Any:
        """Return the task of a site's own rows and their places; None if the model needs all."""

    def descended(
        self, weights: Weights, site: Site, *, steps: int, lr: float, decay: float
    ) -> Descended:
        """Take steps with the user's part; with the last, take the gradient in what is shared.

        Args:
            weights: (size,), float32.
            site: of one user.
            steps: 1 or more.
            lr: size of a step.
            decay: L2 coefficient of the user's part, on L_u.

        Raises:
            ValueError: weights or data do not fit the model.
            FloatingPointError: training diverged to NaN or infinity.
        """
        import torch

        near = self._near(site, weights)
        if not site.count:
            return Descended(np.zeros(self.base, np.float32), weights[self.base :].copy())
        if near is not None:
            own = near.task.descended(weights[near.rows], site, steps=steps, lr=lr, decay=decay)
            whole = np.zeros(self.base, dtype=np.float32)
            whole[near.rows[: len(own.slope)]] = own.slope
            return Descended(whole, own.head)
        module, count = self._load(weights, site), site.count
        parameters, head = list(module.parameters()), nn.head(module)
        batch = next(self.batches(site))
        draws = torch.Generator().manual_seed(batch.seed)
        for step in range(steps):
            outputs = self._outputs(module, site.data, batch.records, draws, True)
            loss = self._loss(outputs, site.data, batch.records) * (count / 2)  # it was a mean
            wanted = parameters if step == steps - 1 else head
            slopes = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
            with torch.no_grad():
                for part, slope in zip(head, slopes[len(wanted) - len(head) :], strict=True):
                    part.sub_(slope + decay * part, alpha=lr / count)
        shared = slopes[: len(parameters) - len(head)]
        return Descended(_flat(shared), _flat([part.detach() for part in head]))

    def stepped(
        self, weights: Weights, slope: Weights, moments: Moments
    ) -> tuple[Weights, Moments]:
        """Some weights after one step of the optimiser along a slope, and what it remembers.

        For an aggregator that steps along a sum of clients' gradients; shapes (k,), any k.

        Raises:
            FloatingPointError: training diverged to NaN or infinity.
        """
        import torch

        from algorithms.tasks import training

        parameter = torch.nn.Parameter(torch.tensor(weights, dtype=torch.float32))
        steps = self._stepper([parameter])
        training.restore(steps, moments)
        parameter.grad = torch.tensor(slope, dtype=torch.float32)
        steps.step()
        return self._finite([parameter]), training.moments(steps)


def _flat(parts: Any) -> Weights:
    import torch

    found: Weights = torch.cat([part.reshape(-1) for part in parts]).numpy()
    if not np.isfinite(found).all():
        raise FloatingPointError(
            "a user's training diverged: a gradient is no longer finite, most likely because "
            "user_lr or model.lr is too large; lower one of them"
        )
    return found
