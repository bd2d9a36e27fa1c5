"""Optimisers of `FlatTask.fit`, and what they remember from one fit to the next.

They are torch's, by their functions. Torch's classes load its compiler, which nothing here uses and
which takes as long to load as all the rest of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from algorithms.tasks import Weights
from algorithms.tasks.site import Site

__all__ = ["Stepper", "moments", "recall", "remember", "restore", "unguided"]


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
