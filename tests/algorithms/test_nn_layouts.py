"""What models say of their parameters without torch is what torch has, for every one of them."""

from __future__ import annotations

from typing import Any

import pytest

from algorithms import nn
from algorithms.nn._shared.layouts import Layout, affine
from algorithms.nn._shared.modules import Stack
from algorithms.tasks import DataSpec, Kind
from algorithms.tasks.ego import EgoTask
from algorithms.tasks.node import NodeTask
from secure_fgl.config import ModelConfig
from secure_fgl.data.kinds import build_task

SIZES = [(5, 1), (8, 2), (3, 4)]
SPECS: dict[Kind, DataSpec] = {
    "node": DataSpec("node", 7, 4, 64, 3, True, "toy"),
    "graph": DataSpec("graph", 7, 2, 64, 3, True, "toy"),
    "rating": DataSpec("rating", 0, 1, 64, 3, True, "toy", users=9, items=6, lowest=1, highest=5),
}
EVERY = pytest.mark.parametrize("name", nn.model_names())
SHAPES = pytest.mark.parametrize(("hidden", "layers"), SIZES)
INPUTS = pytest.mark.parametrize("inputs", ["constant", "degree"])


def built(module: Any) -> Layout:
    return Layout.of(module, nn.head(module), stack=isinstance(module, Stack))


def kind(name: str) -> Kind:
    return next(kind for kind in SPECS if name in nn.model_names(kind))


@EVERY
@SHAPES
@INPUTS
def test_a_declared_layout_is_that_of_the_built_module(
    name: str, hidden: int, layers: int, inputs: str
) -> None:
    file: Any = nn.model(name, kind(name))
    sizes = (7, 4, hidden, layers, 0.5)
    given = (*sizes, inputs) if file.TASK == "rating" else sizes
    assert file.layout(*given) == built(file.build(*given))


@EVERY
@SHAPES
def test_a_task_knows_its_sizes_as_its_module_has_them(name: str, hidden: int, layers: int) -> None:
    settings = ModelConfig(name=name, hidden=hidden, layers=layers)
    task: Any = build_task(SPECS[kind(name)], settings)
    module = task._build()
    assert task.size == sum(p.numel() for p in module.parameters())
    assert task.size - task.base == sum(p.numel() for p in nn.head(module))
    assert task.layout() == tuple((n, tuple(p.shape)) for n, p in module.named_parameters())
    if isinstance(task, EgoTask):
        own = (*module.personal.parameters(), *module.head.parameters())
        assert task.parts == tuple(p.numel() for p in own)
        assert task.reduction == sum(p.numel() for p in module.reduction.parameters())
        assert len(task.rings) == module.hops + 1
    elif isinstance(task, NodeTask):
        deep = isinstance(module, Stack) and len(module.layers) > 1
        assert task.width == (nn.head(module)[0].shape[0] if deep else 4)


def test_the_comparison_sees_another_shape_another_order_and_another_head() -> None:
    file: Any = nn.model("gcn")
    found = built(file.build(7, 4, 5, 2, 0.0))
    assert file.layout(7, 4, 6, 2, 0.0) != found
    turned = tuple(reversed(found.base))
    assert Layout(turned, found.head, stack=True) != found
    assert Layout((), found.whole, stack=True) != found


def test_a_file_that_declares_nothing_is_built_to_see() -> None:
    class Undeclared:
        def build(self, *sizes: Any) -> Any:
            return nn.model("gcn").build(*sizes)

    assert nn.layout(Undeclared(), 7, 4, 5, 2, 0.0) == nn.layout(nn.model("gcn"), 7, 4, 5, 2, 0.0)


def test_a_layout_counts_its_entries() -> None:
    assert Layout(affine("a.", 3, 4), affine("b.", 4, 2)).size == 3 * 4 + 4 + 4 * 2 + 2
