"""Real numbers to exact integers and back; several integers per coefficient."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import OutOfRange
from crypto.quantiser import Grid, Packing, from_limbs, limbs
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
    """A stream that draws one number, however unlikely."""

    def __init__(self, draw):
        super().__init__(KEY)
        self.draw = draw

    def unit(self, count):
        return np.full(count, self.draw)


@pytest.mark.parametrize("draw", [0.0, 1 - 2.0**-53])
def test_zero_stays_zero_and_the_ends_hold_for_every_draw(draw):
    values = np.array([0.0, 1.0, -1.0, 0.999, -0.999])
    levels = Grid(1.0, 8).quantise(values, Extreme(draw)).tolist()
    assert levels[:3] == [0, 127, -127]
    assert levels[3:] == ([127, -126] if draw == 0 else [126, -127])


@pytest.mark.parametrize("bad", [1.0000001, -2.0, np.nan, np.inf, -np.inf])
def test_values_outside_are_refused_not_clipped(bad):
    with pytest.raises(OutOfRange) as refusal:
        Grid(1.0, 8).quantise(np.array([0.1, bad]), Stream(KEY))
    assert str(bad) not in str(refusal.value)


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


@st.composite
def packings(draw):
    value_bits, cohort = draw(st.integers(1, 20)), draw(st.integers(1, 300))
    need = value_bits + (cohort - 1).bit_length()
    return Packing(value_bits, cohort, draw(st.integers(need, 62)))


@given(packings(), st.integers(0, 40), st.integers(0, 2**32))
def test_sums_of_a_whole_cohort_unpack_exactly(packing, count, seed):
    stream = Stream(seed.to_bytes(32, "big"))
    rows = [stream.uniform(1 << packing.value_bits, count) for _ in range(packing.cohort)]
    rows[0][:1] = (1 << packing.value_bits) - 1
    total = sum((packing.pack(row) for row in rows[1:]), packing.pack(rows[0]))
    assert total.size == packing.coefficients(count)
    assert total.size == 0 or int(total.max()) < 1 << packing.plain_bits
    assert np.array_equal(packing.unpack(total, count), sum(rows[1:], rows[0]))


def test_the_largest_sum_fits_exactly():
    packing = Packing(value_bits=16, cohort=10, plain_bits=44)
    assert (packing.slot_bits, packing.per) == (20, 2)
    full = packing.pack(np.full(5, 0xFFFF, dtype=np.uint64)) * np.uint64(10)
    assert packing.unpack(full, 5).tolist() == [655350] * 5


def test_an_impossible_packing_explains_itself():
    with pytest.raises(OutOfRange, match=r"100 clients of 40-bit values needs 47 bits.*holds 44"):
        Packing(value_bits=40, cohort=100, plain_bits=44)
    for wrong in ((0, 1, 44), (8, 0, 44), (8, 1, 63), (8, 1, 0)):
        with pytest.raises(OutOfRange):
            Packing(*wrong)


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 1 << 16], dtype=np.uint64),
        np.array([-1], dtype=np.int64),
        np.array([1.0]),
        np.zeros((2, 2), dtype=np.uint64),
    ],
)
def test_packing_never_wraps_silently(values):
    with pytest.raises(OutOfRange):
        Packing(16, 10, 44).pack(values)


def test_totals_that_no_cohort_can_reach_are_refused():
    packing = Packing(value_bits=16, cohort=10, plain_bits=44)
    good = packing.pack(np.array([1, 2, 3], dtype=np.uint64))
    assert packing.unpack(good, 3).tolist() == [1, 2, 3]
    too_large = np.array([10 * 0xFFFF + 1, 0], dtype=np.uint64)
    beyond_slots = good + np.array([1 << 40, 0], dtype=np.uint64)
    unused_slot = good + np.array([0, 1 << 20], dtype=np.uint64)
    for wrong in (too_large, beyond_slots, unused_slot, good[:1]):
        with pytest.raises(OutOfRange):
            packing.unpack(wrong, 3)


def test_a_wrong_blind_is_noticed():
    packing = Packing(value_bits=16, cohort=3, plain_bits=44)
    noise = Stream(KEY).uniform(1 << 44, 500)
    with pytest.raises(OutOfRange):
        packing.unpack(noise, 1000)


@given(st.integers(1, 8), st.integers(1, 40), st.data())
def test_limbs_add_up_over_a_cohort(count, bits, data):
    values = data.draw(st.lists(st.integers(0, 2 ** (count * bits) - 1), min_size=1, max_size=6))
    split = [limbs(value, count, bits) for value in values]
    assert all(0 <= limb < 1 << bits for row in split for limb in row)
    totals = [sum(column) for column in zip(*split, strict=True)]
    assert from_limbs(totals, bits) == sum(values)


@pytest.mark.parametrize(
    ("value", "count", "bits"), [(-1, 2, 8), (1 << 16, 2, 8), (1, 0, 8), (1, 1, 0)]
)
def test_integers_that_do_not_fit_are_refused(value, count, bits):
    with pytest.raises(OutOfRange):
        limbs(value, count, bits)


def test_negative_totals_are_refused():
    with pytest.raises(OutOfRange):
        from_limbs([1, -1], 8)
