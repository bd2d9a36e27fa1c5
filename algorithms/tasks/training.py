"""What tasks compute with torch: optimisers, noised gradients, masked weights, plain models.

Optimisers are torch's, by their functions. Torch's classes load its compiler, which nothing here
uses and which takes as long to load as all the rest of torch.

**Noised gradients.** The site's `PrivateSteps` draws a batch for each gradient, so the batches of
an algorithm's own steps hold no records here; all that they bring is the number of steps. A site
without training records trains like any other, on noise, since whether it has any is private too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from algorithms.nn._shared.modules import Stack
from algorithms.nn._shared.plain import MixedOutputs
from algorithms.tasks import Batch, ClientModel, DataSpec, Mixed, PrivateSteps, Site, Weights

__all__ = [
    "Masked",
    "Noised",
    "PullBack",
    "Stepper",
    "activated",
    "batches",
    "below",
    "descend",
    "matrices",
    "mixed",
    "moments",
    "plain_model",
    "recall",
    "remember",
    "restore",
    "unguided",
]


class Stepper:
    """Steps of ``adamw``, ``adam`` or ``sgd`` with torch's own settings, bit for bit.

    Decay is decoupled under ``adamw``: with L2 inside the gradient, Adam's steps move every weight
    that the loss does not touch (the rare words) by a full lr, however small the decay.

    Args:
        kind: its name.
        parameters: what it moves; one without a gradient stays.
        lr, weight_decay: see `FlatTask`.
        fused: one kernel a parameter, which takes a third of the time on millions of them.

    Attributes:
        state: what it remembers, by place of the parameter and by name; ``sgd`` nothing.
    """

    def __init__(
        self,
        kind: str,
        parameters: list[torch.nn.Parameter],
        lr: float,
        weight_decay: float,
        *,
        fused: bool = False,
    ) -> None:
        self._kind, self._lr, self._fused = kind, lr, fused
        self._groups = [(list(enumerate(parameters)), weight_decay)]
        self._count = len(parameters)
        self.state: dict[int, dict[str, Tensor]] = {}

    def also(self, parameters: list[torch.nn.Parameter], weight_decay: float) -> None:
        """Move these parameters too, with a decay of their own."""
        self._groups.append((list(enumerate(parameters, self._count)), weight_decay))
        self._count += len(parameters)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for group, _ in self._groups:
            for _, parameter in group:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Take one step along the parameters' gradients."""
        for group, decay in self._groups:
            moved = [(place, p, p.grad) for place, p in group if p.grad is not None]
            parameters: list[Tensor] = [p for _, p, _ in moved]
            common: dict[str, Any] = {"foreach": False, "fused": self._fused, "maximize": False}
            common |= {"lr": self._lr, "weight_decay": decay}
            if self._kind == "sgd":
                self._descend(parameters, [grad for _, _, grad in moved], common)
            else:
                known = [self._of(place, p) for place, p, _ in moved]
                self._adapt(parameters, [grad for _, _, grad in moved], known, common)

    def _descend(
        self, parameters: list[Tensor], slopes: list[Tensor], common: Mapping[str, Any]
    ) -> None:
        none: dict[str, Any] = {"momentum": 0.0, "dampening": 0.0, "nesterov": False}
        sgd(parameters, slopes, [None] * len(parameters), **common, **none)

    def _adapt(
        self,
        parameters: list[Tensor],
        slopes: list[Tensor],
        known: list[dict[str, Tensor]],
        common: Mapping[str, Any],
    ) -> None:
        first, second, steps = ([k[n] for k in known] for n in ("exp_avg", "exp_avg_sq", "step"))
        usual: dict[str, Any] = {"amsgrad": False, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
        kind = adamw if self._kind == "adamw" else adam
        kind(parameters, slopes, first, second, [], steps, **common, **usual)

    def _of(self, place: int, parameter: Tensor) -> dict[str, Tensor]:
        if place not in self.state:
            zeros = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            self.state[place] = {"step": torch.tensor(0.0), **zeros}
        return self.state[place]


def moments(steps: Stepper) -> dict[str, Any]:
    """Return what an optimiser remembers as arrays, by place and name; SGD remembers nothing."""
    return {
        f"{place}.{name}": value.detach().numpy()
        for place, facts in steps.state.items()
        for name, value in facts.items()
    }


def restore(steps: Stepper, kept: Mapping[str, Any]) -> None:
    """Let an optimiser of the same parameters remember these `moments`, if there are any."""
    for key, value in kept.items():
        place, name = key.split(".")
        steps.state.setdefault(int(place), {})[name] = torch.tensor(value)


def remember(steps: Stepper, site: Site) -> None:
    """Keep what an optimiser remembers at its site."""
    site.memory["moments"] = moments(steps)


def recall(steps: Stepper, site: Site) -> None:
    """Let an optimiser of the same parameters remember what was kept at a site, if anything was."""
    restore(steps, site.memory.get("moments", {}))


def unguided(
    make: Callable[[list[torch.nn.Parameter]], Stepper],
    start: Weights,
    steps: int,
    pull: float,
) -> Weights:
    """Return weights after an optimiser's steps where the loss has no gradient, (k,)."""
    before = torch.tensor(start)
    parameter = torch.nn.Parameter(before.clone())
    stepper = make([parameter])
    for _ in range(steps):
        parameter.grad = (parameter.detach() - before).mul_(pull)
        stepper.step()
    found: Weights = parameter.detach().numpy()
    return found


Numbers = npt.NDArray[np.int64]
Rows = Iterator[npt.NDArray[np.float32]]
PullBack = Callable[[Numbers, Tensor], Rows]
"""From records (b,) and slopes at their outputs (b, C) to one gradient (d,) for each."""


@dataclass(frozen=True, repr=False)
class Noised:
    """One model at one site, whose gradients are noised. Everything here is private.

    Attributes:
        steps: draws batches and noise.
        records: int64 (n,), numbers of the training records.
        size: parameters, d.
        outputs: of records, (b, C), before the activation, without dropout.
        loss: mean loss of records from their outputs.
        back: see `PullBack`.
    """

    steps: PrivateSteps
    records: Numbers
    size: int
    outputs: Callable[[Numbers], Tensor]
    loss: Callable[[Tensor, Numbers], Tensor]
    back: PullBack

    def gradient(self) -> Weights:
        """Return one noised mean gradient, float32 (d,), without weight decay."""

        def rows(places: Numbers) -> Rows:
            if len(places):
                chosen = self.records[places]
                yield from self.back(chosen, self.slopes(self.outputs(chosen), chosen))

        return self.steps.step(len(self.records), self.size, rows).astype(np.float32)

    def slopes(self, outputs: Tensor, records: Numbers) -> Tensor:
        """Return the gradient of each record's own loss at its outputs, (b, C)."""
        at = outputs.detach().requires_grad_()
        each = [self.loss(at[k : k + 1], records[k : k + 1]) for k in range(len(records))]
        (found,) = torch.autograd.grad(torch.stack(each).sum(), at)
        return found


def batches(site: Site) -> Iterator[Batch]:
    """Yield batches without records, without end."""
    while True:
        seed = site.generator("batch").integers(2**63)
        yield Batch(np.zeros(0, dtype=np.int64), int(seed))


def descend(
    noised: Noised,
    parameters: Sequence[torch.nn.Parameter],
    stepper: Stepper,
    pull: float,
    pulled: int,
) -> None:
    """Take a round's noised steps; the parameters hold the result, the first `pulled` are pulled.

    Weight decay and pull depend on no record, so they stand outside the noise.
    """
    start = [parameter.detach().clone() for parameter in parameters]
    for _ in range(noised.steps.steps):
        found, begin = torch.from_numpy(noised.gradient()), 0
        for place, (parameter, before) in enumerate(zip(parameters, start, strict=True)):
            end = begin + parameter.numel()
            parameter.grad = found[begin:end].view_as(parameter).clone()
            if pull and place < pulled:
                parameter.grad.add_(parameter.detach() - before, alpha=pull)
            begin = end
        stepper.step()


def mixed(personal: Noised, shared: Noised, alpha: float) -> Mixed:
    """Return noised mean gradients of the mixture of two models, without weight decay.

    The gradients with respect to both models and to alpha are clipped as one vector of 2 d + 1
    entries: they come from one batch, so they are one release.
    """
    size = personal.size

    def rows(places: Numbers) -> Iterator[npt.NDArray[Any]]:
        if not len(places):
            return
        chosen = personal.records[places]
        own, common = personal.outputs(chosen), shared.outputs(chosen)
        slopes = personal.slopes(alpha * own + (1.0 - alpha) * common, chosen)
        towards = (slopes * (own - common)).sum(dim=1, keepdim=True).numpy()
        ours = personal.back(chosen, alpha * slopes)
        theirs = shared.back(chosen, (1.0 - alpha) * slopes)
        for parts in zip(ours, theirs, towards, strict=True):
            yield np.concatenate(parts)

    found = personal.steps.step(len(personal.records), 2 * size + 1, rows).astype(np.float32)
    return Mixed(personal=found[:size], shared=found[size:-1], alpha=float(found[-1]))


def below(module: torch.nn.Module) -> torch.nn.Module:
    """Return the model without its last layer, up to its activations before their ReLU.

    A model of a single layer comes back as it is.
    """
    if isinstance(module, Stack) and len(module.layers) > 1:
        return Stack(list(module.layers)[:-1], module.rate)
    return module


def matrices(module: torch.nn.Module) -> npt.NDArray[np.bool_]:
    """Return which entries of the flat vector belong to weight matrices, (d,): all but biases."""
    parts = [np.full(p.numel(), p.dim() > 1) for p in module.parameters()]
    return np.concatenate(parts)


class Masked(torch.nn.Module):
    """A model that computes with W * M in place of each weight matrix W; biases have no mask.

    Args:
        inner: the model, with its weights.
        masks: float32 (d,), in the order of the model's parameters; entries of biases are unread.
    """

    def __init__(self, inner: torch.nn.Module, masks: Weights) -> None:
        super().__init__()
        self.inner = inner
        self._began = [p.detach().clone() for p in inner.parameters()]
        self._given = masks
        whole = [torch.empty_like(p) for p in inner.parameters()]
        vector_to_parameters(torch.tensor(masks), whole)
        self.masks = torch.nn.ParameterList(m for m in whole if m.dim() > 1)

    def forward(self, *arguments: Any) -> Tensor:
        """Outputs of the model with masked matrices."""
        masks = iter(self.masks)
        named = self.inner.named_parameters()
        used = {name: p * next(masks) if p.dim() > 1 else p for name, p in named}
        outputs: Tensor = functional_call(self.inner, used, arguments)
        return outputs

    def penalty(self, l1: float, l2: float) -> Tensor:
        """Return l1 |M|_1 + l2 |W - W'|_2^2 over all masks and parameters; W' is where it began."""
        sizes = [mask.abs().sum() for mask in self.masks]
        ways = [
            (p - before).square().sum()
            for p, before in zip(self.inner.parameters(), self._began, strict=True)
        ]
        return l1 * torch.stack(sizes).sum() + l2 * torch.stack(ways).sum()

    def flat(self) -> tuple[Weights, Weights]:
        """Return weights and masks as new float32 vectors, (d,) each."""
        weights: Weights = parameters_to_vector(self.inner.parameters()).detach().numpy()
        masks = self._given.copy()
        masks[matrices(self.inner)] = parameters_to_vector(self.masks).detach().numpy()
        return weights, masks


def plain_model(task: Any, model: ClientModel) -> torch.nn.Module:
    """Return a module of the same outputs, in evaluation mode.

    For nodes and graphs it is made of PyTorch Geometric's layers and gives logits, see
    `algorithms.nn._shared.plain`; for ratings see `algorithms.nn._shared.plain`.

    Args:
        task: of `algorithms.tasks`; it has `plain` for one flat vector of weights.
        model: the client's.

    Raises:
        ValueError: the weights are not those of the whole model.
    """
    made: torch.nn.Module = task.plain(model.shared, model.beside)
    if model.own is not None:
        made = MixedOutputs(task.plain(model.own, model.beside), made, model.alpha)
    return task.finished(made).eval() if hasattr(task, "finished") else made.eval()


def activated(spec: DataSpec, outputs: Tensor) -> Tensor:
    """Return predictions, as `Task.predict` gives them, from what such a module returned."""
    if spec.task == "rating":
        return outputs[:, None]
    return torch.sigmoid(outputs) if spec.multilabel else torch.softmax(outputs, dim=1)
