"""What a module from outside the folder starts from: parameters and buffers as it makes them.

Our own modules make nothing: their parameters are drawn by their task. A module of somebody's own
may make scales of ones, weights by torch's initialisers, and constants in buffers. It is made under
a seed, in torch's deterministic mode, which fills what `torch.empty` leaves open with NaN; so what
the module made is told from what it did not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from algorithms.tasks import Weights

__all__ = ["making", "moved_buffers", "started"]


@contextmanager
def making(seed: int) -> Iterator[None]:
    """Let modules draw from a stream of their own, and what they leave open be NaN."""
    before = torch.get_deterministic_debug_mode()
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        torch.set_deterministic_debug_mode("error")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)


def started(build: Callable[[], torch.nn.Module], drawn: Weights, seed: int) -> Weights:
    """Return a module's parameters as it makes them, flat; what it leaves open is `drawn`."""
    with making(seed):
        module = build()
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
