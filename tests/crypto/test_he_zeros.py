"""Zero-encryptions made ahead: the same uploads as without, and why each is used once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.errors import InvalidCiphertext, InvalidKey, OutOfRange
from crypto.homomorphic.he import NAMES, scheme
from crypto.samplers import Stream

KEYS = {name: scheme(name).keygen() for name in NAMES}


@pytest.fixture(params=NAMES)
def he(request):
    return scheme(request.param)


@pytest.fixture
def keys(he):
    return KEYS[he.name]


def row(he, count=5000, seed=1):
    return Stream(seed.to_bytes(32, "big")).uniform(he.plain_modulus, count)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_with_and_without_zeros_the_same_is_opened(name, data):
    he, (public, secret) = scheme(name), KEYS[name]
    edges = st.sampled_from([0, 1, he.plain_modulus // 2, he.plain_modulus - 1])
    numbers = st.lists(edges | st.integers(0, he.plain_modulus - 1), min_size=1, max_size=20)
    plain = np.array(data.draw(numbers), dtype=np.uint64)
    at_once = he.decrypt(secret, he.encrypt(public, plain))
    ahead = he.decrypt(secret, he.encrypt(public, plain, he.zeros(public, 1)))
    assert np.array_equal(at_once, ahead)
    assert np.array_equal(ahead[: plain.size], plain)


def test_zeros_open_as_zeros_and_have_the_wire_length(he, keys):
    public, secret = keys
    zeros = he.zeros(public, 3)
    assert len(zeros) == 3 * he.ciphertext_bytes
    assert not he.decrypt(secret, zeros).any()
    width = he.ciphertext_bytes
    assert len({zeros[i * width : (i + 1) * width] for i in range(3)}) == 3


@pytest.mark.parametrize("name", NAMES)
def test_an_upload_is_its_zeros_with_the_plaintext_on_top(name):
    he, (public, _) = scheme(name), KEYS[name]
    plain, zeros = row(he, 3 * he.degree - 5), he.zeros(public, 3)
    upload = he.encrypt(public, plain, zeros)
    rows = np.append(plain, np.zeros(5, dtype=np.uint64)).reshape(3, he.degree)
    assert upload == he.to_wire(he.shifted(he.parse(zeros), rows))
    halves = [np.frombuffer(blob, np.uint8).reshape(3, 2, -1) for blob in (upload, zeros)]
    same = [
        [np.array_equal(*(blob[i, part] for blob in halves)) for part in (0, 1)] for i in (0, 1, 2)
    ]
    assert same == [[False, True]] * 3  # c1, the second half of a ciphertext, is the zero's own


def test_only_the_right_number_of_zeros_is_taken(he, keys):
    public, secret = keys
    plain = row(he)  # two ciphertexts
    for count in (1, 3):
        with pytest.raises(OutOfRange, match="Exactly one"):
            he.encrypt(public, plain, he.zeros(public, count))
    right = he.zeros(public, 2)
    for wrong in (b"", right[:-1], right + b"\0"):
        with pytest.raises(OutOfRange, match="Exactly one"):
            he.encrypt(public, plain, wrong)
    for count in (0, -1):
        with pytest.raises(OutOfRange):
            he.zeros(public, count)
    assert np.array_equal(he.decrypt(secret, he.encrypt(public, plain, right))[: plain.size], plain)


def test_bytes_that_are_no_zeros_are_refused(he, keys):
    public, _ = keys
    for wrong in (bytes(he.ciphertext_bytes), b"\xff" * he.ciphertext_bytes):
        with pytest.raises(InvalidCiphertext):
            he.encrypt(public, row(he, 3), wrong)


def test_a_destroyed_secret_leaves_the_zeros_of_its_public_key_harmless(he):
    public, secret = he.keygen()
    zeros = he.zeros(public, 1)
    secret.destroy()
    with pytest.raises(InvalidKey):
        he.decrypt(secret, zeros)


def difference_without_a_key(he, first, second):
    """What somebody who saw two uploads reads from the difference of their first halves."""
    words = [he.parse(blob)[0, : he.degree].astype(object) for blob in (first, second)]
    apart = (words[0] - words[1]) % he.prime
    return (2 * apart * he.plain_modulus + he.prime) // (2 * he.prime) % he.plain_modulus


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("bfv")])
def test_a_zero_used_twice_gives_the_difference_of_two_plaintexts_away(name):
    he, (public, _) = scheme(name), KEYS[name]
    first, second = row(he, he.degree, 1), row(he, he.degree, 2)
    truth = (first - second) % np.uint64(he.plain_modulus)  # t divides 2^64
    again = he.zeros(public, 1)
    reused = [he.encrypt(public, plain, again) for plain in (first, second)]
    assert np.array_equal(difference_without_a_key(he, *reused), truth)  # the control
    fresh = [he.encrypt(public, plain, he.zeros(public, 1)) for plain in (first, second)]
    assert np.mean(difference_without_a_key(he, *fresh) == truth) < 0.01


def test_whoever_knows_the_zero_reads_the_upload():
    he = scheme("ckks-sealapi")
    public, _ = KEYS[he.name]
    plain, zero = row(he, he.degree), he.zeros(public, 1)
    words = [
        he.parse(blob)[0, : he.degree].astype(object)
        for blob in (he.encrypt(public, plain, zero), zero)
    ]
    found = (words[0] - words[1]) % he.prime
    found = np.where(found > he.prime // 2, found - he.prime, found) >> 20
    assert np.array_equal((found % he.plain_modulus).astype(np.uint64), plain)
