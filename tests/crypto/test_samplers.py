"""Entropy, key derivation and keyed streams."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crypto import samplers
from crypto.errors import InvalidKey, OutOfRange
from crypto.samplers import MAX_MODULUS, Stream, derive, entropy
from tests.crypto.known import unhex, vectors

KEY = bytes(range(32))


@pytest.mark.parametrize("case", vectors("rfc5869_hkdf_sha256.json")["cases"])
def test_rfc5869_known_answers(case):
    ikm, salt, info, okm = unhex(case["ikm"], case["salt"], case["info"], case["okm"])
    assert samplers._hkdf(ikm, salt=salt, info=info, length=case["length"]) == okm


def test_entropy_comes_fresh_and_in_the_asked_length():
    assert len(entropy(7)) == 7
    assert entropy(32) != entropy(32)
    with pytest.raises(OutOfRange):
        entropy(0)


def test_derive_tells_every_sequence_of_labels_apart():
    sequences = [
        (),
        ("",),
        ("", ""),
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        (b"abc",),
        (b"ab", "c"),
        ("c", "ab"),
    ]
    keys = {derive(KEY, *labels) for labels in sequences}
    assert len(keys) == len(sequences)
    assert derive(KEY, "x") == derive(KEY, "x")
    assert derive(KEY, "x") != derive(KEY[::-1], "x")


@given(st.lists(st.text(max_size=4), max_size=3), st.lists(st.text(max_size=4), max_size=3))
def test_derive_is_injective_in_its_labels(left, right):
    assert (derive(KEY, *left) == derive(KEY, *right)) == (left == right)


def test_derive_lengths():
    assert derive(KEY, "x", length=64)[:32] == derive(KEY, "x")
    for length in (0, 255 * 32 + 1):
        with pytest.raises(OutOfRange):
            derive(KEY, "x", length=length)
    with pytest.raises(InvalidKey):
        derive(b"short", "x")


def test_the_stream_is_aes_256_in_counter_mode_from_zero():
    block = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor()
    expected = b"".join(block.update(counter.to_bytes(16, "big")) for counter in range(5))
    assert Stream(KEY).bytes(80) == expected


def test_words_are_little_endian_and_continue_the_stream():
    stream = Stream(KEY)
    first, second = stream.words(3), stream.words(2)
    whole = np.frombuffer(Stream(KEY).bytes(40), dtype="<u8")
    assert first.dtype == np.uint64
    assert np.array_equal(np.concatenate([first, second]), whole)


@pytest.mark.parametrize("sizes", [(0, 1, 31, 68), (100,), ((1 << 18) + 3, 5)])
def test_filling_is_reading_without_a_copy(sizes):
    filled, whole = Stream(KEY), Stream(KEY).bytes(sum(sizes))
    buffer = np.empty(sum(sizes), dtype=np.uint8)
    start = 0
    for size in sizes:
        filled.fill(buffer[start : start + size])
        start += size
    assert buffer.tobytes() == whole
    assert filled.bytes(9) == Stream(KEY).bytes(sum(sizes) + 9)[-9:]


@pytest.mark.parametrize(
    "buffer", [np.zeros(4, np.uint16), np.zeros((2, 2), np.uint8), np.zeros(4, np.uint8)[::2]]
)
def test_only_a_plain_vector_of_bytes_is_filled(buffer):
    with pytest.raises(OutOfRange):
        Stream(KEY).fill(buffer)


@pytest.mark.parametrize("modulus", [1, 2, 3, 1 << 44, 4398046568449, MAX_MODULUS, MAX_MODULUS - 1])
def test_uniform_is_the_sequence_of_accepted_words(modulus):
    mask = (1 << (modulus - 1).bit_length()) - 1
    accepted = [int(word) & mask for word in Stream(KEY).words(400)]
    accepted = [word for word in accepted if word < modulus]
    stream = Stream(KEY)
    drawn = np.concatenate([stream.uniform(modulus, count) for count in (1, 0, 50, 49)])
    assert drawn.dtype == np.uint64
    assert drawn.tolist() == accepted[:100]


@pytest.mark.parametrize("modulus", [3, 7, 10, 64, 100])
def test_uniform_has_no_modulo_bias(modulus):
    counts = np.bincount(Stream(KEY).uniform(modulus, 200_000).astype(int), minlength=modulus)
    assert counts.size == modulus
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize("modulus", [0, -1, MAX_MODULUS + 1])
def test_impossible_moduli_are_refused(modulus):
    with pytest.raises(OutOfRange):
        Stream(KEY).uniform(modulus, 1)


def test_unit_is_uniform_below_one_on_the_53_bit_grid():
    values = Stream(KEY).unit(100_000)
    assert values.min() >= 0.0
    assert values.max() < 1.0
    assert np.array_equal(values * 2.0**53, np.floor(values * 2.0**53))
    assert stats.kstest(values, "uniform").pvalue > 1e-6


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_only_256_bit_keys_make_a_stream(length):
    with pytest.raises(InvalidKey):
        Stream(bytes(length))
    with pytest.raises(OutOfRange):
        Stream(KEY).bytes(-1)
