"""Networks on ego-graphs: positions, orders, and what both ways of judging have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import vector_to_parameters

from algorithms import nn
from algorithms.nn._shared.layouts import levels
from algorithms.nn._shared.sparse import propagation

NAMES = [name for name in nn.model_names("node") if nn.on_egos(name)]
DEGREE, NODES = 3, 12


def net(name: str, *, layers: int = 2, rate: float = 0.0, features: int = 5) -> Any:
    module = nn.model(name).build(features, 4, 6, layers, rate)
    size = sum(p.numel() for p in module.parameters())
    values = np.random.default_rng(1).normal(size=size).astype(np.float32)
    vector_to_parameters(torch.from_numpy(values), module.parameters())
    return module


def ring() -> tuple[Any, Any]:
    """Return a graph in which every node has three neighbours, and each node's neighbours."""
    u = np.arange(NODES)
    pairs = np.hstack([[u, (u + 1) % NODES], [u[: NODES // 2], u[: NODES // 2] + NODES // 2]])
    edges = torch.from_numpy(np.sort(pairs, axis=0))
    near = [sorted({*pairs[1][pairs[0] == v], *pairs[0][pairs[1] == v]}) for v in u]
    return edges, np.array(near)


def whole_egos(near: Any, hops: int) -> Any:
    """Return every node's ego-graph with all its neighbours at the positions of its children."""
    egos = np.arange(len(near))[:, None]
    wide = len(near[0])
    for child in range(1, sum(levels(hops, wide))):
        parent = egos[:, (child - 1) // wide]
        egos = np.column_stack([egos, near[parent, (child - 1) % wide]])
    return egos


def judged(module: Any, egos: Any, fan_out: int = DEGREE) -> Any:
    rows = torch.as_tensor(egos, dtype=torch.float32)
    return module.judge(rows, fan_out, torch.Generator(), False).detach().numpy()


def test_the_ego_models_are_these() -> None:
    assert NAMES == ["ego_mlp", "ego_sage", "ego_sage_linear"]
    assert not nn.on_egos("gcn") and not nn.on_egos("no_such_model")


def test_levels_of_two_hops_and_six_children_have_43_positions() -> None:
    assert levels(2, 6) == (1, 6, 36) and sum(levels(2, 6)) == 43
    assert levels(0, 6) == (1,) and sum(levels(3, 2)) == 15


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_ego_graphs_with_all_neighbours_are_judged_like_the_whole_graph(
    name: str, layers: int
) -> None:
    """The children of position p are n p + 1 ... n p + n: any other numbering would fail here."""
    module, (edges, near) = net(name, layers=layers), ring()
    x = torch.randn(NODES, 5, generator=torch.Generator().manual_seed(2))
    matrix = propagation(edges, NODES, nn.model(name).PROPAGATION)
    expected = module(x, matrix, torch.Generator(), False).detach().numpy()
    reduced = module.reduce(x, matrix, torch.Generator(), False).detach().numpy()
    egos = whole_egos(near, module.hops)
    np.testing.assert_allclose(judged(module, reduced[egos]), expected, rtol=1e-4, atol=1e-4)
    assert np.ptp(expected, axis=0).max() > 0.1


def orders(rng: Any, *, inside: bool) -> Any:
    """Return an order of the positions of 2 hops and 3 children that keeps levels apart.

    With `inside`, the children of one parent stay together; otherwise they may change parents.
    """
    if not inside:
        return np.concatenate([[0], 1 + rng.permutation(3), 4 + rng.permutation(9)])
    first = rng.permutation(3)
    below = [4 + 3 * parent + rng.permutation(3) for parent in first]
    return np.concatenate([[0], 1 + first, *below])


@pytest.mark.parametrize("inside", [True, False])
def test_linear_the_centre_does_not_depend_on_the_order_of_children(inside: bool) -> None:
    """Theorem 4.1: any order within the levels, even one that gives children other parents."""
    module, rng = net("ego_sage_linear"), np.random.default_rng(3)
    egos = rng.random((7, 13, 6))
    expected = judged(module, egos)
    for _ in range(5):
        moved = judged(module, egos[:, orders(rng, inside=inside)])
        np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-4)


def test_linear_any_alignment_gives_the_same_mixture_s_centre() -> None:
    module, rng = net("ego_sage_linear"), np.random.default_rng(4)
    members = rng.random((8, 13, 6))
    aligned = [np.stack([m[orders(rng, inside=False)] for m in members]).mean(0) for _ in range(4)]
    seen = judged(module, np.stack(aligned))
    np.testing.assert_allclose(seen, np.tile(seen[0], (4, 1)), rtol=1e-4, atol=1e-4)
    assert np.ptp(np.stack(aligned), axis=0).max() > 0.1


def test_with_relus_only_children_of_one_parent_may_change_places() -> None:
    """Control of the theorem: without linearity the alignment matters."""
    module, rng = net("ego_sage"), np.random.default_rng(3)
    egos = rng.standard_normal((7, 13, 6))
    expected = judged(module, egos)
    same = judged(module, egos[:, orders(rng, inside=True)])
    np.testing.assert_allclose(same, expected, rtol=1e-4, atol=1e-4)
    other = judged(module, egos[:, orders(rng, inside=False)])
    assert np.abs(other - expected).max() > 0.1


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("ego_sage", [(5, 7), (7,), *[(7, 7), (7, 7), (7,)] * 2, (7, 3)]),
        ("ego_sage_linear", [(5, 7), (7,), *[(7, 7), (7, 7), (7,)] * 2, (7, 3)]),
        ("ego_mlp", [(5, 7), (5, 7), (7,), (7, 7), (7, 7), (7,), *[(7, 7), (7,)] * 2, (7, 3)]),
    ],
)
def test_reduction_comes_first_and_the_classifier_without_bias_last(name: str, shapes: Any) -> None:
    module: Any = nn.model(name).build(5, 3, 7, 2, 0.5)
    assert [tuple(p.shape) for p in module.parameters()] == shapes
    first = [id(p) for p in module.reduction.parameters()]
    assert [id(p) for p in module.parameters()][: len(first)] == first
    assert [tuple(p.shape) for p in nn.head(module)] == [(7, 3)]
    assert module.alone is (name != "ego_mlp") and module.hops == (0 if name == "ego_mlp" else 2)


@pytest.mark.parametrize("name", NAMES)
def test_dropout_draws_from_its_generator_alone(name: str) -> None:
    module = net(name, rate=0.5)
    egos = torch.ones(4, sum(levels(module.hops, 2)), 6)
    seen = [
        module.judge(egos, 2, torch.Generator().manual_seed(seed), True).detach().numpy()
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])
