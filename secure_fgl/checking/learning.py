"""Whether a model learns at all: a toy that can be told apart, and what a module made of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from algorithms.tasks.flat import Sized
from secure_fgl.checking.small import CLIENTS
from secure_fgl.data import Graph
from secure_fgl.plugins.loading import making

__all__ = ["COMMONEST", "toy", "unlike_made"]

COMMONEST = 0.5
_EACH, _WIDE = 40, 8


def toy() -> Graph:
    """Return a graph of five owners and two classes, alike often; the first columns say which."""
    rng = np.random.default_rng(5)
    count = CLIENTS * _EACH
    owner, y = np.repeat(np.arange(CLIENTS), _EACH), np.tile([0, 1], count // 2)
    x = rng.normal(0.0, 0.3, (count, _WIDE))
    x[np.arange(count), y] += 1.0
    pairs = np.array([(u, u + 2) for u in range(count - 2) if owner[u] == owner[u + 2]]).T
    return Graph("toy", pairs, x.astype(np.float32), y, 2, True, owner)


def unlike_made(task: Any) -> Iterator[str]:
    """Yield how the start of a task's model is not what its module makes.

    Args:
        task: of a model from outside our folder.
    """
    rng = np.random.default_rng(0)
    Sized.initial(task, rng)  # `FlatTask.initial` draws this first, and the module's seed then
    seed, twice = int(rng.integers(2**63)), []
    for _ in range(2):
        with making(seed):
            twice.append(task._build())
    one, other = (dict(module.state_dict()) for module in twice)
    yield from (
        f"{name} is made otherwise each time: draw with torch, which is seeded alike at all sites"
        for name in one
        if not torch.equal(one[name].nan_to_num(), other[name].nan_to_num())
    )
    start, place = task.initial(np.random.default_rng(0)), 0
    for name, parameter in twice[0].named_parameters():
        made = parameter.detach().reshape(-1).numpy()
        begun = start[place : place + len(made)]
        place += len(made)
        if not np.array_equal(begun[~np.isnan(made)], made[~np.isnan(made)]):
            yield f"{name} starts from something else than the module makes"
