"""Optimisers of `FlatTask.fit`, and what they remember from one fit to the next."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from algorithms.site import Site

__all__ = ["OPTIMISERS", "Optimiser", "optimiser", "recall", "remember"]

Optimiser = Literal["adamw", "adam", "sgd"]

OPTIMISERS: dict[str, Any] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}


def optimiser(
    name: str, parameters: list[torch.nn.Parameter], lr: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Return a new optimiser.

    Decay is decoupled by default: with L2 inside the gradient, Adam's steps move every weight that
    the loss does not touch (the rare words) by a full lr, however small the decay.
    """
    kind = OPTIMISERS[name]
    found: torch.optim.Optimizer = kind(parameters, lr=lr, weight_decay=weight_decay, foreach=False)
    return found


def remember(steps: torch.optim.Optimizer, site: Site) -> None:
    """Keep what an optimiser remembers at its site, by place and name; SGD remembers nothing."""
    site.memory["moments"] = {
        f"{place}.{name}": value.detach().numpy()
        for place, facts in steps.state_dict()["state"].items()
        for name, value in facts.items()
        if isinstance(value, Tensor)
    }


def recall(steps: torch.optim.Optimizer, site: Site) -> None:
    """Let an optimiser of the same parameters remember what was kept at a site, if anything was."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in site.memory.get("moments", {}).items():
        place, name = key.split(".")
        state.setdefault(int(place), {})[name] = torch.tensor(value)
    if state:
        steps.load_state_dict({**steps.state_dict(), "state": state})
