"""Sequences of norms: time warping against all alignments, and what clients are compared by."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from algorithms._shared.clusters import (
    PIVOTS,
    directed,
    distances,
    pivots,
    scaled,
    standardised,
    to_pivots,
    warped,
)

ENTRIES = st.floats(-1e3, 1e3)
PAIRS = st.integers(1, 7).flatmap(
    lambda size: st.tuples(*[arrays(np.float64, size, elements=ENTRIES)] * 2)
)


def alignments(rows: int, columns: int, path: tuple[tuple[int, int], ...] = ((0, 0),)):
    """Every monotone alignment, step by step."""
    i, j = path[-1]
    if (i, j) == (rows - 1, columns - 1):
        yield path
        return
    for i2, j2 in ((i + 1, j), (i, j + 1), (i + 1, j + 1)):
        if i2 < rows and j2 < columns:
            yield from alignments(rows, columns, (*path, (i2, j2)))


@given(PAIRS)
@settings(max_examples=60, deadline=None)
def test_warping_is_a_distance_below_the_euclidean_one(pair) -> None:
    one, other = pair
    found = float(warped(one, other))
    assert float(warped(one, one)) == 0.0
    assert found == float(warped(other, one))
    assert found <= np.linalg.norm(one - other) * (1 + 1e-12)


@pytest.mark.parametrize("lengths", [(1, 1), (3, 4), (4, 4), (5, 2)])
def test_warping_finds_the_best_of_all_alignments(lengths) -> None:
    rng = np.random.default_rng(3)
    one, other = (rng.normal(size=length) for length in lengths)
    paths = list(alignments(*lengths))
    assert all(0 < (a - c) + (b - d) <= 2 for path in paths for (c, d), (a, b) in pairwise(path))
    best = min(sum((one[i] - other[j]) ** 2 for i, j in path) for path in paths)
    assert float(warped(one, other)) == pytest.approx(np.sqrt(best), rel=1e-12)


def test_many_at_once_are_as_one_by_one_and_a_delay_costs_nothing() -> None:
    rng = np.random.default_rng(1)
    one, many = rng.normal(size=6), rng.normal(size=(4, 5))
    np.testing.assert_array_equal(warped(one, many), [warped(one, row) for row in many])
    between = distances([one, *many])
    np.testing.assert_array_equal(between, between.T)
    assert not np.diag(between).any()
    step, late = np.array([0.0, 1.0, 1.0, 1.0]), np.array([0.0, 0.0, 0.0, 1.0])
    assert float(warped(step, late)) == 0.0 < np.linalg.norm(step - late)


def test_pivots_are_public_and_measured_by_themselves() -> None:
    here, there = pivots(5, 6), pivots(6, 6)
    assert here.walks.shape == (PIVOTS, 6)
    np.testing.assert_allclose(here.walks.std(axis=1), 1.0)
    assert here.walks.tobytes() == pivots.__wrapped__(5, 6).walks.tobytes()
    assert here.walks.tobytes() != there.walks.tobytes()
    seen = np.array([to_pivots(walk, 5) for walk in here.walks])
    off = seen[~np.eye(PIVOTS, dtype=bool)].reshape(PIVOTS, PIVOTS - 1)
    assert abs(off.mean()) < 1e-12
    # A public sequence's entry at its own place is a distance of zero.
    np.testing.assert_allclose(np.diag(seen), -here.means / here.spreads)


def test_scale_is_not_seen_and_a_constant_sequence_has_no_side() -> None:
    course = np.array([0.3, 0.2, 0.4, 0.1])
    np.testing.assert_allclose(to_pivots(8 * course, 2), to_pivots(course, 2))
    np.testing.assert_allclose(standardised(8 * course + 3), standardised(course))
    for constant in (np.full(4, 0.1), np.zeros(4), np.array([0.1, 0.1 + 1e-17, 0.1, 0.1])):
        assert scaled(constant) is None
        for vector, others in (
            (to_pivots(constant, 2), to_pivots(course, 2)),
            (standardised(constant), standardised(course)),
        ):
            own, other = directed(vector), directed(others)
            assert np.linalg.norm(own) == 1.0
            assert own @ other == 0.0
