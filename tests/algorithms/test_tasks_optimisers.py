"""Our steps are torch's optimisers', bit for bit, and what they remember is theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from algorithms.tasks.training import Stepper, moments, restore

TORCH = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
SHAPES = ((5, 3), (3,), (70, 11))
BOTH = pytest.mark.parametrize("fused", [False, True])
KINDS = pytest.mark.parametrize("kind", TORCH)


def begun() -> list[torch.nn.Parameter]:
    rng = np.random.default_rng(1)
    return [
        torch.nn.Parameter(torch.tensor(rng.normal(size=s), dtype=torch.float32)) for s in SHAPES
    ]


def walk(steps: Any, parameters: list[torch.nn.Parameter], count: int, seed: int = 2) -> None:
    rng = np.random.default_rng(seed)
    for number in range(count):
        steps.zero_grad()
        for place, p in enumerate(parameters):
            slope = torch.tensor(rng.normal(size=p.shape), dtype=torch.float32)
            p.grad = None if (number + place) % 3 == 2 else slope  # not every step moves all
        steps.step()


def theirs(kind: str, parameters: list[torch.nn.Parameter], decay: float, fused: bool) -> Any:
    how = {"fused": True} if fused else {"foreach": False}
    made: Any = TORCH[kind]
    return made(parameters, lr=0.03, weight_decay=decay, **how)


@KINDS
@BOTH
@pytest.mark.parametrize("decay", [0.0, 5e-4])
def test_steps_and_moments_are_torch_s_bit_for_bit(kind: str, fused: bool, decay: float) -> None:
    ours, other = begun(), begun()
    steps, torch_steps = (
        Stepper(kind, ours, 0.03, decay, fused=fused),
        theirs(kind, other, decay, fused),
    )
    walk(steps, ours, 7)
    walk(torch_steps, other, 7)
    assert all(torch.equal(a, b) for a, b in zip(ours, other, strict=True))
    assert not torch.equal(ours[0], begun()[0])
    known = {
        f"{place}.{name}": value.numpy()
        for place, facts in torch_steps.state_dict()["state"].items()
        for name, value in facts.items()
        if isinstance(value, torch.Tensor)
    }
    found = moments(steps)
    assert found.keys() == known.keys()
    assert all(np.array_equal(found[key], known[key]) for key in known)
    assert bool(found) == (kind != "sgd")


@KINDS
def test_a_second_group_has_its_own_decay(kind: str) -> None:
    ours, other = begun(), begun()
    steps = Stepper(kind, ours[:2], 0.03, 0.1)
    steps.also(ours[2:], 0.0)
    torch_steps = theirs(kind, other[:2], 0.1, False)
    torch_steps.add_param_group({"params": other[2:], "weight_decay": 0.0})
    walk(steps, ours, 5)
    walk(torch_steps, other, 5)
    assert all(torch.equal(a, b) for a, b in zip(ours, other, strict=True))


@KINDS
def test_restored_moments_go_on_as_if_nothing_had_been(kind: str) -> None:
    whole, half = begun(), begun()
    through, first = Stepper(kind, whole, 0.03, 0.01), Stepper(kind, half, 0.03, 0.01)
    walk(through, whole, 3)
    walk(through, whole, 3, seed=4)
    walk(first, half, 3)
    second = Stepper(kind, half, 0.03, 0.01)
    restore(second, {key: value.copy() for key, value in moments(first).items()})
    walk(second, half, 3, seed=4)
    assert all(torch.equal(a, b) for a, b in zip(whole, half, strict=True))
