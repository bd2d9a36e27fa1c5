"""Pairwise masks: keystreams in the container's width, sums that cancel exactly."""

import tracemalloc

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crypto.errors import InvalidKey, OutOfRange
from crypto.masks import MaskSum, container, masked
from crypto.samplers import Stream

LEVEL = 1e-6  # false alarms
PRIME = 4398046568449  # a prime of 43 bits
POWERS = [1 << bits for bits in (1, 8, 16, 17, 26, 32, 33, 44, 48, 63, 64)]
MODULI = [*POWERS, 3, 1000, 65535, 65537, PRIME, (1 << 48) - 59]
KEYS = st.lists(st.binary(min_size=32, max_size=32), max_size=4)
LONG = (1 << 18) // 2 + 77  # more than one block of the narrowest container


def keystream(key, count):
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return cipher.update(bytes(count))


def expected(values, modulus, plus, minus):
    """The same by exact integers, one at a time."""
    total = [int(value) for value in values]
    width = container(modulus).itemsize
    for sign, keys in ((1, plus), (-1, minus)):
        for key in keys:
            if modulus & (modulus - 1) == 0:
                raw = keystream(key, width * len(total))
                words = [raw[i : i + width] for i in range(0, len(raw), width)]
                mask = [int.from_bytes(word, "little") for word in words]
            else:
                mask = Stream(key).uniform(modulus, len(total)).tolist()
            total = [a + sign * b for a, b in zip(total, mask, strict=True)]
    return [value % modulus for value in total]


def some(modulus, size, key=bytes(32)):
    words = [int(word) % modulus for word in Stream(key).words(size)]
    return np.array(words, dtype=container(modulus))


@pytest.mark.parametrize(
    ("modulus", "width"),
    [(2, 2), (1 << 16, 2), (65537, 4), (1 << 17, 4), (1 << 32, 4), (1 << 33, 8), (PRIME, 8)],
)
def test_the_container_is_the_smallest_that_holds_a_value(modulus, width):
    assert container(modulus).itemsize == width
    assert masked(some(modulus, 3), modulus, [bytes(32)], []).dtype == container(modulus)


@pytest.mark.parametrize("modulus", [1, 0, -2, 1 << 65, (1 << 48) + 1, (1 << 64) - 59])
def test_impossible_moduli_are_refused(modulus):
    for refused in (
        lambda: container(modulus),
        lambda: masked(np.zeros(1, np.uint64), modulus, [], []),
        lambda: MaskSum(modulus, 1),
    ):
        with pytest.raises(OutOfRange):
            refused()


@given(st.sampled_from(MODULI), st.integers(0, 20), KEYS, KEYS)
def test_masks_are_the_exact_keystreams(modulus, size, plus, minus):
    values = some(modulus, size)
    kept = values.copy()
    result = masked(values, modulus, plus, minus)
    assert result.tolist() == expected(values, modulus, plus, minus)
    assert np.array_equal(values, kept)  # the caller's vector is his


@pytest.mark.parametrize("modulus", [1 << 16, 1 << 26, 1 << 32, 1 << 44, PRIME])
def test_blocks_and_groups_of_keys_join_without_a_seam(modulus):
    keys = [bytes([i, 1] * 16) for i in range(70)]  # more than are open at a time
    size = LONG if modulus == 1 << 16 else (1 << 18) // 4 + 5
    values = some(modulus, size)
    result = masked(values, modulus, iter(keys[:67]), iter(keys[67:]))
    places = [0, 1, size // 2, (1 << 18) // 8 - 1, (1 << 18) // 8, size - 1]
    whole = np.zeros(size, dtype=object)
    for key in keys:
        if modulus == PRIME:
            mask = Stream(key).uniform(modulus, size)
        else:
            mask = np.frombuffer(
                keystream(key, size * container(modulus).itemsize), container(modulus)
            )
        whole += mask.astype(object) * (1 if key in keys[:67] else -1)
    assert np.array_equal(result, ((values.astype(object) + whole) % modulus).astype(np.uint64))
    assert all(int(result[p]) == (int(values[p]) + whole[p]) % modulus for p in places)


@pytest.mark.parametrize("modulus", MODULI)
def test_o4_masks_cancel_over_the_whole_cohort_only(modulus):
    size, clients = 600, 4
    pairs = {(i, j): bytes([i, j] * 16) for i in range(clients) for j in range(i + 1, clients)}
    values = [some(modulus, size, bytes([i] * 32)) for i in range(clients)]
    total, uploads = MaskSum(modulus, size), []
    for i in range(clients):
        plus = [key for (a, _), key in pairs.items() if a == i]
        minus = [key for (_, b), key in pairs.items() if b == i]
        uploads.append(masked(values[i], modulus, plus, minus))
        total.add(uploads[-1])
    plain = sum(v.astype(object) for v in values) % modulus
    assert total.values.tolist() == plain.tolist()
    if modulus >= 64:
        part = sum(u.astype(object) for u in uploads[1:]) % modulus
        counts = np.bincount((part * 16 // modulus).astype(int), minlength=16)
        assert stats.chisquare(counts).pvalue > LEVEL
        assert part.tolist() != (sum(v.astype(object) for v in values[1:]) % modulus).tolist()


@given(st.sampled_from(MODULI), KEYS, KEYS)
def test_take_is_the_inverse_of_masked(modulus, plus, minus):
    values = some(modulus, 9)
    total = MaskSum(modulus, 9)
    total.add(masked(values, modulus, plus, minus))
    total.take(plus, minus)
    assert total.values.tolist() == values.tolist()
    assert total.values.dtype == container(modulus)


@pytest.mark.parametrize("modulus", MODULI)
def test_sums_stay_reduced_at_the_edge(modulus):
    top = np.full(3, modulus - 1, dtype=np.uint64)
    total = MaskSum(modulus, 3)
    for count in range(1, 6):
        total.add(top if count % 2 else top.astype(container(modulus)))
        assert total.values.tolist() == [count * (modulus - 1) % modulus] * 3


def test_the_sum_is_not_the_callers():
    total = MaskSum(1 << 16, 2)
    total.values[:] = 7
    assert total.values.tolist() == [0, 0]


@pytest.mark.parametrize("modulus", [8, 1 << 16, 1 << 26, 1 << 44, 65535, PRIME])
def test_what_is_not_reduced_is_refused(modulus):
    wrong = np.array([0, modulus], dtype=np.uint64)
    with pytest.raises(OutOfRange):
        masked(wrong, modulus, [], [])
    with pytest.raises(OutOfRange):
        MaskSum(modulus, 2).add(wrong)
    if modulus <= np.iinfo(container(modulus)).max:  # in the container itself, too
        with pytest.raises(OutOfRange):
            masked(wrong.astype(container(modulus)), modulus, [], [])


@pytest.mark.parametrize("wrong", [np.array([-1, 1]), np.array([1.0, 2.0]), np.zeros((2, 1), "u2")])
def test_only_unsigned_vectors_are_masked(wrong):
    with pytest.raises(OutOfRange):
        masked(wrong, 1 << 16, [], [])
    with pytest.raises(OutOfRange):
        MaskSum(1 << 16, 2).add(wrong)


def test_vectors_of_another_size_are_refused():
    for size in (1, 3):  # one value would be spread over the whole sum
        with pytest.raises(OutOfRange):
            MaskSum(1 << 16, 2).add(np.zeros(size, dtype=np.uint16))
    with pytest.raises(OutOfRange):
        MaskSum(1 << 16, -1)


def test_a_key_of_another_length_is_refused():
    for short in ([bytes(31)], [bytes(32), b""]):
        with pytest.raises(InvalidKey):
            masked(np.zeros(4, np.uint16), 1 << 16, short, [])


@pytest.mark.parametrize("modulus", [1 << 16, 1 << 32])
def test_narrow_masks_never_take_wide_memory(modulus):
    size = 1 << 20
    values, keys = np.zeros(size, dtype=container(modulus)), [bytes([i] * 32) for i in range(8)]
    tracemalloc.start()
    masked(values, modulus, keys[:4], keys[4:])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < values.nbytes + (1 << 20)  # the result, one block, and no n x 8 bytes


def test_values_that_are_not_spared_are_masked_in_place() -> None:
    values = np.arange(5, dtype=np.uint32)
    kept = masked(values, 1 << 32, [bytes(32)], [])
    assert np.array_equal(values, np.arange(5))
    done = masked(values, 1 << 32, [bytes(32)], [], spare=False)
    assert done is values and np.array_equal(done, kept)
