"""Optimisers of `FlatTask.fit`, and what they remember from one fit to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from algorithms.tasks import Weights
from algorithms.tasks.site import Site

__all__ = [
    "moments",
    "optimiser",
    "recall",
    "remember",
    "restore",
    "unguided",
]

_OPTIMISERS: dict[str, Any] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}


def optimiser(
    name: str,
    parameters: list[torch.nn.Parameter],
    lr: float,
    weight_decay: float,
    *,
    fused: bool = False,
) -> torch.optim.Optimizer:
    """Return a new optimiser; a `fused` one takes a third of the time on millions of parameters.

    Decay is decoupled by default: with L2 inside the gradient, Adam's steps move every weight that
    the loss does not touch (the rare words) by a full lr, however small the decay.
    """
    kind = _OPTIMISERS[name]
    how = {"fused": True} if fused else {"foreach": False}
    found: torch.optim.Optimizer = kind(parameters, lr=lr, weight_decay=weight_decay, **how)
    return found


def moments(steps: torch.optim.Optimizer) -> dict[str, Any]:
    """Return what an optimiser remembers as arrays, by place and name; SGD remembers nothing."""
    return {
        f"{place}.{name}": value.detach().numpy()
        for place, facts in steps.state_dict()["state"].items()
        for name, value in facts.items()
        if isinstance(value, Tensor)
    }


def restore(steps: torch.optim.Optimizer, kept: Mapping[str, Any]) -> None:
    """Let an optimiser of the same parameters remember these `moments`, if there are any."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in kept.items():
        place, name = key.split(".")
        state.setdefault(int(place), {})[name] = torch.tensor(value)
    if state:
        steps.load_state_dict({**steps.state_dict(), "state": state})


def remember(steps: torch.optim.Optimizer, site: Site) -> None:
    """Keep what an optimiser remembers at its site."""
    site.memory["moments"] = moments(steps)


def recall(steps: torch.optim.Optimizer, site: Site) -> None:
    """Let an optimiser of the same parameters remember what was kept at a site, if anything was."""
    restore(steps, site.memory.get("moments", {}))


def unguided(
    make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer],
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
