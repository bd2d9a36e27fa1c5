"""Sampling ego-graphs of one shape from neighbour lists, and mixing them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from algorithms.tasks.ego_graphs import Neighbours, distinct, mashed, sample

STAR = np.array([[0, 0, 0, 1], [1, 2, 3, 2]])
"""0 knows 1, 2, 3; 1 knows 2; 4 knows nobody."""


def star() -> Neighbours:
    return Neighbours.of(STAR, 5)


def links(edges: Any) -> set[tuple[int, int]]:
    return {*zip(*edges.tolist(), strict=True), *zip(*edges[::-1].tolist(), strict=True)}


def test_neighbour_lists_hold_both_directions_in_order() -> None:
    graph = star()
    lists = [
        graph.listed[a:b].tolist() for a, b in zip(graph.starts, graph.starts[1:], strict=False)
    ]
    assert lists == [[1, 2, 3], [0, 2], [0, 1], [0], []]


@pytest.mark.parametrize(("hops", "fan_out"), [(0, 6), (1, 1), (1, 4), (2, 6), (3, 2)])
def test_every_child_is_a_neighbour_of_its_parent(hops: int, fan_out: int) -> None:
    rng = np.random.default_rng(0)
    edges = np.stack(np.nonzero(np.triu(rng.random((50, 50)) < 0.1, k=1)))
    known, centres = links(edges), rng.permutation(50)[:30]
    egos = sample(Neighbours.of(edges, 50), centres, hops, fan_out, rng)
    positions = sum(fan_out**level for level in range(hops + 1))
    assert egos.shape == (30, positions) and egos.dtype == np.int64
    np.testing.assert_array_equal(egos[:, 0], centres)
    alone = set(range(50)) - set(edges.ravel().tolist())
    for position in range(1, positions):
        pairs = zip(egos[:, (position - 1) // fan_out], egos[:, position], strict=True)
        assert all((u, v) in known or (u == v and u in alone) for u, v in pairs)


def test_an_isolated_node_repeats_itself() -> None:
    egos = sample(star(), np.array([4]), 2, 6, np.random.default_rng(0))
    assert egos.shape == (1, 43) and (egos == 4).all()


def test_a_single_neighbour_stands_at_every_child() -> None:
    egos = sample(star(), np.array([3]), 2, 2, np.random.default_rng(0))
    assert egos[0, 1:3].tolist() == [0, 0] and set(egos[0, 3:]) <= {1, 2, 3}


def test_neighbours_are_drawn_evenly_and_with_replacement() -> None:
    egos = sample(star(), np.zeros(6000, dtype=np.int64), 1, 3, np.random.default_rng(1))
    counts = np.bincount(egos[:, 1:].ravel(), minlength=5)
    assert counts[0] == counts[4] == 0
    assert np.abs(counts[1:4] - 6000).max() < 5 * np.sqrt(18000 * 2 / 9)
    same = (egos[:, 1] == egos[:, 2]).mean()
    assert abs(same - 1 / 3) < 0.05


def test_the_same_generator_gives_the_same_egos() -> None:
    one, two, other = (
        sample(star(), np.arange(5), 2, 6, np.random.default_rng(s)) for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_no_centre_and_no_edge_are_no_trouble() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert sample(star(), nothing, 2, 6, np.random.default_rng(0)).shape == (0, 43)
    bare = Neighbours.of(np.zeros((2, 0), dtype=np.int64), 3)
    alone = sample(bare, np.arange(3), 1, 2, np.random.default_rng(0))
    assert alone.tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]


def test_distinct_counts_nodes_at_the_poorest_position() -> None:
    assert distinct(np.array([[0, 5, 7], [1, 5, 8], [2, 6, 9]])) == 2
    assert distinct(np.array([[0, 5]])) == 1 and distinct(np.zeros((0, 3), dtype=np.int64)) == 0


def test_a_mixture_is_the_mean_of_the_distinct_nodes_at_each_position() -> None:
    table = np.arange(10.0)[:, None] * [1.0, 10.0]
    index = np.array([[0, 5, 5], [1, 5, 7], [2, 8, 9]])
    expected = np.array([1.0, 6.5, 7.0])[:, None] * [1.0, 10.0]
    np.testing.assert_allclose(mashed(table, index), expected)
    single = table.astype(np.float32)
    np.testing.assert_array_equal(mashed(single, index[:1]), single[index[0]])
    assert mashed(single, index).dtype == np.float32
