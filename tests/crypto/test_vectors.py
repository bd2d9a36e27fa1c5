"""Sketches keep cosines to the error that is claimed; the layout keeps them exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.errors import OutOfRange
from crypto.homomorphic.similarity import polynomials, sketch, unit

REALS = st.floats(-1e6, 1e6, allow_nan=False, width=32)


def pair(d: int, cos: float) -> tuple[np.ndarray, np.ndarray]:
    first, other = np.random.default_rng(5).standard_normal((2, d)) + 1  # a mean must not add up
    first, other = unit(first), other - (other @ unit(first)) * unit(first)
    return first, cos * first + math.sqrt(1 - cos**2) * unit(other)


@pytest.mark.parametrize("cos", [0.0, 0.7, -0.95])
def test_the_error_of_a_sketch_is_what_the_formula_says(cos):
    width = 1 << 10
    first, second = pair(20_000, cos)
    errors = []
    for number in range(60):  # pinned: new seeds would pass these limits once in 10^5 times
        seed = number.to_bytes(32, "big")
        errors.append(sketch(first, seed, width) @ sketch(second, seed, width) - cos)
    deviation = math.sqrt((1 + cos**2) / width)
    assert abs(np.mean(errors)) < 5 * deviation / math.sqrt(60)
    assert 0.6 < np.std(errors) / deviation < 1.5  # 60 draws: five standard deviations


def test_sketches_under_two_seeds_have_nothing_in_common():
    first, _ = pair(20_000, 0.5)
    apart = unit(sketch(first, bytes(32), 1 << 12)) @ unit(sketch(first, bytes([1] * 32), 1 << 12))
    assert abs(apart) < 6 / math.sqrt(1 << 12)


@settings(max_examples=40)
@given(
    rows=st.integers(1, 50).flatmap(
        lambda d: st.tuples(*[st.lists(REALS, min_size=d, max_size=d)] * 2)
    )
)
def test_a_sketch_is_linear_and_keeps_every_value_once(rows):
    first, second = map(np.array, rows)
    seed = bytes(range(32))
    both = sketch(first + second, seed, 64)
    assert np.allclose(both, sketch(first, seed, 64) + sketch(second, seed, 64), atol=1e-6)
    for place in range(len(first)):
        alone = sketch(np.eye(len(first))[place], seed, 64)
        assert sorted(np.abs(alone)) == [0.0] * 63 + [1.0]


@pytest.mark.parametrize("width", [0, 1, 3, 1000, 1 << 25])
def test_widths_that_are_no_power_of_two_are_refused(width):
    with pytest.raises(OutOfRange, match="power of two"):
        sketch(np.ones(5), bytes(32), width)


def slots(laid: np.ndarray) -> np.ndarray:
    degree = laid.shape[1]
    turn = np.exp(1j * np.pi * np.arange(degree) / degree)
    return np.fft.fft(laid * turn, axis=1)


@settings(max_examples=40)
@given(data=st.data())
def test_o3_slots_are_real_and_their_products_sum_to_the_inner_product(data):
    degree, d = 16, data.draw(st.integers(1, 30))
    first, second = (
        np.array(data.draw(st.lists(st.floats(-1, 1), min_size=d, max_size=d))) for _ in range(2)
    )
    views = [slots(polynomials(row, degree, 40)) for row in (first, second)]
    for view in views:
        assert np.abs(view.imag).max() < 2.0**-40 * 2**60  # floats of size 2^44
    # All N roots come in pairs of equal slots: half of them are CKKS's N/2 slots.
    total = (views[0].real * views[1].real).sum() / 2
    assert abs(total / (degree / 2) / 2.0**81 - first @ second) < 1e-9


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_length_one_at_every_size(size):
    found = unit(size * np.array([3.0, -4.0]))
    assert np.allclose(found, [0.6, -0.8], rtol=1e-15)


@pytest.mark.parametrize("wrong", [np.zeros(3), np.array([np.nan]), np.ones((1, 2)), np.array([])])
def test_what_has_no_direction_is_refused(wrong):
    with pytest.raises(OutOfRange):
        unit(wrong)
