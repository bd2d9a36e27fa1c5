"""Real numbers to exact integers and back."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import OutOfRange
from crypto.quantiser import Grid
from crypto.samplers import Stream

KEY = bytes(range(32))
GRIDS = st.builds(Grid, st.floats(1e-6, 1e6), st.integers(2, 32))


@given(GRIDS, st.lists(st.floats(-1, 1), max_size=50), st.binary(min_size=32, max_size=32))
def test_every_value_goes_to_a_neighbour_and_stays_on_the_grid(grid, fractions, key):
    values = np.clip(np.array(fractions) * grid.bound, -grid.bound, grid.bound)
    levels = grid.quantise(values, Stream(key))
    assert levels.dtype == np.int64
    assert np.all(np.abs(levels) <= grid.levels)
    error = np.abs(grid.restore(levels) - values)
    assert np.all(error <= grid.step * (1 + 1e-9))
    assert np.all(levels[values == 0] == 0)


@given(GRIDS, st.data())
def test_a_level_keeps_its_place(grid, data):
    level = data.draw(st.integers(-min(grid.levels, 2**20), min(grid.levels, 2**20)))
    moved = grid.quantise(grid.restore(np.array([level])), Stream(KEY))
    assert moved[0] == level


@pytest.mark.parametrize("value", [-0.9, -0.26, -1e-4, 0.013, 0.5, 0.77])
def test_rounding_is_unbiased_with_the_variance_of_a_coin(value):
    grid, draws = Grid(bound=1.0, bits=4), 400_000
    restored = grid.restore(grid.quantise(np.full(draws, value), Stream(KEY)))
    scaled = value / grid.step
    fraction = scaled - np.floor(scaled)
    deviation = grid.step * np.sqrt(fraction * (1 - fraction))
    assert abs(restored.mean() - value) < 5 * deviation / np.sqrt(draws)
    assert restored.std() == pytest.approx(deviation, rel=0.05)


def test_both_ends_are_reached_and_not_passed():
    grid = Grid(bound=0.3, bits=8)
    values = np.array([0.3, -0.3, 0.0, -0.0])
    assert grid.quantise(values, Stream(KEY)).tolist() == [127, -127, 0, 0]
    assert grid.restore(np.array([127]))[0] == pytest.approx(0.3)


class Extreme(Stream):
    """A stream that draws its lowest or its highest number for ever, however unlikely."""

    def __init__(self, highest):
        super().__init__(KEY)
        self.highest = highest

    def fill(self, buffer):  # 32-bit words, read as signed
        buffer.view("<i4")[:] = 2**31 - 1 if self.highest else -(2**31)

    def unit(self, count):  # 53 bits, compared the other way round
        return np.full(count, 0.0 if self.highest else 1 - 2.0**-53)


EXTREMES = pytest.mark.parametrize("highest", [False, True])


@EXTREMES
@pytest.mark.parametrize("bits", [8, 20])
def test_zero_stays_zero_and_the_ends_hold_for_every_draw(bits, highest):
    grid = Grid(1.0, bits)
    near = 1 - 0.3 * grid.step
    top = grid.levels
    levels = grid.quantise(np.array([0.0, -0.0, 1.0, -1.0, near, -near]), Extreme(highest))
    assert levels[:4].tolist() == [0, 0, top, -top]
    assert levels[4:].tolist() == ([top, 1 - top] if highest else [top - 1, -top])


@EXTREMES
@pytest.mark.parametrize("bound", [0.3, 1 / 3, 1.0, 7.7e-5, 123456.789, 3.1e300])
@pytest.mark.parametrize("bits", [2, 12, 16])
def test_no_draw_moves_a_value_that_lies_on_a_level(bound, bits, highest):
    grid = Grid(bound, bits)
    levels = np.arange(-grid.levels, grid.levels + 1)
    assert np.array_equal(grid.quantise(grid.restore(levels), Extreme(highest)), levels)


@EXTREMES
@given(GRIDS, st.lists(st.floats(-1, 1), max_size=30))
def test_the_clamp_is_not_needed(highest, grid, fractions):
    values = np.array([*fractions, -1, 1]) * max(grid.bound, grid.levels * grid.step)
    lifted = grid.lifted(values, Extreme(highest))
    assert int(lifted.max()) <= 2 * grid.levels  # below zero it would be near 2^64


@given(st.floats(0.01, 100), st.integers(2, 16), st.lists(st.floats(-1, 1), max_size=40))
def test_narrow_grids_round_by_their_32_bit_words(bound, bits, fractions):
    grid = Grid(bound, bits)
    values = np.array(fractions) * bound
    words = [int(w) for w in np.frombuffer(Stream(KEY).bytes(4 * values.size), "<i4")]
    for value, word, level in zip(values, words, grid.quantise(values, Stream(KEY)), strict=True):
        draw = Fraction(2 * word + 1 + 2**32, 2**33)
        exact = Fraction(value) / Fraction(grid.step) + draw
        slack = Fraction(1, 2**34)  # of the floating-point quotient
        assert floor(exact - slack) <= level <= floor(exact + slack)


def test_the_probability_of_rounding_up_is_exact_to_half_a_draw():
    words = np.arange(-(2**14), 2**14, dtype=np.int64) * 2**17  # one block, evenly spread

    class Sweep(Stream):
        def fill(self, buffer):
            buffer.view("<i4")[:] = words

    grid = Grid(1.0, 4)
    for fraction in (0.0, 0.25, 0.5, 0.8):
        level = grid.quantise(np.full(words.size, (3 + fraction) * grid.step), Sweep(KEY))
        assert abs(level.mean() - 3 - fraction) <= 2.0**-15


@pytest.mark.parametrize("bits", [2, 8, 12, 16, 17, 32])
def test_lifted_levels_are_the_levels_and_l(bits):
    grid, size = Grid(0.7, bits), (1 << 15) + 300  # more than a block
    values = np.array([0.7, -0.7, *(Stream(KEY).unit(size) - 0.5)])
    levels = grid.quantise(values, Stream(KEY))
    for kind in (np.uint16, np.uint32, np.uint64):
        if np.iinfo(kind).max < 2 * grid.levels:
            with pytest.raises(OutOfRange):
                grid.lifted(values, Stream(KEY), kind)
            continue
        lifted = grid.lifted(values, Stream(KEY), kind)
        assert lifted.dtype == kind
        assert np.array_equal(lifted.astype(np.int64), levels + grid.levels)
        place = np.zeros(values.size + 2, dtype=kind)
        grid.lifted(values, Stream(KEY), out=place[1:-1])
        assert np.array_equal(place[1:-1], lifted)
        assert not place[[0, -1]].any()
        with pytest.raises(OutOfRange):
            grid.lifted(values, Stream(KEY), out=place)
    with pytest.raises(OutOfRange):
        grid.lifted(values, Stream(KEY), np.int64)


def test_single_precision_and_strides_round_as_the_same_numbers():
    values = (Stream(KEY).unit(20_000) - 0.5).astype(np.float32)[::3]
    expected = Grid(0.6, 16).quantise(values.astype(np.float64), Stream(KEY))
    assert np.array_equal(Grid(0.6, 16).quantise(values, Stream(KEY)), expected)
    with pytest.raises(OutOfRange):  # the nearest single-precision number above the bound
        Grid(0.1, 8).quantise(np.array([0.1], dtype=np.float32), Stream(KEY))


@pytest.mark.parametrize("bad", [1.0000001, -2.0, np.nan, np.inf, -np.inf])
def test_values_outside_are_refused_not_clipped(bad):
    with pytest.raises(OutOfRange) as refusal:
        Grid(1.0, 8).quantise(np.array([0.1, bad]), Stream(KEY))
    assert str(bad) not in str(refusal.value)
    late = np.zeros((1 << 15) + 5)
    late[-1] = bad
    for bits in (8, 20):
        for rounding in (Grid(1.0, bits).quantise, Grid(1.0, bits).lifted):
            with pytest.raises(OutOfRange):
                rounding(late, Stream(KEY))


def test_only_vectors_are_quantised():
    with pytest.raises(OutOfRange):
        Grid(1.0, 8).quantise(np.zeros((2, 2)), Stream(KEY))


@pytest.mark.parametrize(
    ("bound", "bits"),
    [(0.0, 8), (-1.0, 8), (np.nan, 8), (np.inf, 8), (1.0, 1), (1.0, 33), (1e-308, 16)],
)
def test_impossible_grids_are_refused(bound, bits):
    with pytest.raises(OutOfRange):
        Grid(bound, bits)
