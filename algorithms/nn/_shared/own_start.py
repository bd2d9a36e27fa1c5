"""What a module from outside the folder starts from: parameters and buffers as it makes them.

Our own modules make nothing: their parameters are drawn by their task. A module of somebody's own
may make scales of ones, weights by torch's initialisers, and constants in buffers. It is made under
a seed, in torch's deterministic mode, which fills what `torch.empty` leaves open with NaN: values
that are NaN are those that the module did not set.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from algorithms.tasks import Weights

__all__ = ["moved_buffers", "started"]


def started(module: torch.nn.Module, drawn: Weights) -> Weights:
    """Return a module's parameters as it made them, flat; what it left open is `drawn`."""
    made = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    found: Weights = made.to(torch.float32).numpy()
    return np.where(np.isnan(found), drawn, found)


def moved_buffers(module: torch.nn.Module, forward: Callable[[], object]) -> list[str]:
    """Return the names of buffers that a forward pass changes."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    forward()
    now = dict(module.named_buffers())
    return [
        name
        for name, buffer in before.items()
        if name not in now or not torch.equal(now[name].nan_to_num(), buffer.nan_to_num())
    ] + [name for name in now if name not in before]
