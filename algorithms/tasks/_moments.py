"""What an optimiser remembers from one fit to the next, as plain arrays in a site's memory."""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.site import Site

__all__ = ["recall", "remember"]


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
