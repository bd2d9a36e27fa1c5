"""Several integers per coefficient, with and without head-room for noise; integers in limbs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import OutOfRange
from crypto.quantiser import Packing, from_limbs, limbs
from crypto.samplers import Stream

KEY = bytes(range(32))


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
    for wrong in (
        (0, 1, 44),
        (8, 0, 44),
        (8, 1, 63),
        (8, 1, 0),
        (8, 1, 44, -1),
        (8, 1, 44, 1 << 44),
    ):
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


PRIME = 4398046568449  # above 2^42


@st.composite
def noisy(draw):
    value_bits, cohort = draw(st.integers(1, 12)), draw(st.integers(1, 40))
    margin = draw(st.integers(1, 5000))
    return Packing(value_bits, cohort, 42, margin)


@given(noisy(), st.sampled_from([1 << 42, 1 << 44, PRIME]), st.integers(1, 30), st.data())
def test_o19_totals_with_signed_noise_unpack_exactly(packing, modulus, count, data):
    """Clients whose values fall below zero, up to the margins of the total on both sides."""
    top = (1 << packing.value_bits) - 1
    share = packing.margin // packing.cohort
    cell = st.integers(-share, top + share)
    row = st.lists(cell, min_size=count, max_size=count)
    rows = [np.array(data.draw(row), dtype=np.int64) for _ in range(min(packing.cohort, 4))]
    rows[0][0], rows[-1][-1] = -share, top + share
    total = np.zeros(packing.coefficients(count), dtype=object)
    for values in rows:
        packed = packing.pack(values, modulus)
        assert packed.dtype == np.uint64 and int(packed.max()) < modulus
        total = (total + packed.astype(object)) % modulus
    unpacked = packing.unpack(total.astype(np.uint64), count, modulus)
    assert unpacked.dtype == np.int64
    assert np.array_equal(unpacked, sum(rows[1:], rows[0]))


@pytest.mark.parametrize("modulus", [1 << 44, PRIME])
def test_o19_the_margins_are_reached_and_not_passed(modulus):
    packing = Packing(value_bits=8, cohort=3, plain_bits=42, margin=100)
    assert packing.capacity == 965 and (packing.slot_bits, packing.per) == (10, 4)
    ends = [-100, 3 * 255 + 100, 0, -1, 865]  # three slots of the last coefficient stay empty

    def coefficients(totals):
        padded = [*totals, *[0] * (-len(totals) % 4)]
        joined = [
            sum(v << (10 * k) for k, v in enumerate(padded[i : i + 4])) % modulus
            for i in range(0, len(padded), 4)
        ]
        return np.array(joined, dtype=np.uint64)

    assert packing.unpack(coefficients(ends), 5, modulus).tolist() == ends
    for place in range(5):
        for beyond in (-101, 866):
            wrong = [*ends]
            wrong[place] = beyond
            with pytest.raises(OutOfRange):
                packing.unpack(coefficients(wrong), 5, modulus)
    for stray in (1, -1):
        with pytest.raises(OutOfRange):  # an empty slot that is not zero
            packing.unpack(coefficients([*ends, 0, stray]), 5, modulus)


def test_o19_noise_beyond_the_margin_is_refused_before_it_leaves():
    packing = Packing(value_bits=8, cohort=3, plain_bits=44, margin=100)
    assert packing.pack(np.array([-100, 355]), 1 << 44).size == 1
    for value in (-101, 356):
        with pytest.raises(OutOfRange):
            packing.pack(np.array([0, value]), 1 << 44)
    for modulus in (None, (1 << 44) - 1, 1 << 63):
        with pytest.raises(OutOfRange):
            packing.pack(np.array([1]), modulus)
        with pytest.raises(OutOfRange):
            packing.unpack(np.zeros(1, np.uint64), 1, modulus)
    with pytest.raises(OutOfRange):
        packing.unpack(np.array([1 << 44], np.uint64), 1, 1 << 44)
    assert packing.unpack(packing.pack(np.array([7], np.uint8), 1 << 44), 1, 1 << 44).tolist() == [
        7
    ]


def test_without_noise_the_modulus_changes_nothing():
    packing, values = Packing(16, 10, 44), np.array([1, 2, 3], dtype=np.uint16)
    packed = packing.pack(values, PRIME << 10)
    assert np.array_equal(packed, packing.pack(values))
    assert packing.unpack(packed, 3, PRIME << 10).tolist() == [1, 2, 3]


@given(packings())
def test_no_slot_is_wider_than_its_value_and_the_logarithm_of_the_cohort(packing):
    assert packing.slot_bits <= packing.value_bits + (packing.cohort - 1).bit_length()
    assert packing.capacity >> packing.slot_bits == 0


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
