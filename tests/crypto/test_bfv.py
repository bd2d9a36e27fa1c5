"""Exact sums under encryption, on both roads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from crypto import bfv as facade
from crypto.bfv import NAMES, scheme
from crypto.errors import InvalidCiphertext, InvalidKey, OutOfRange, SelfTestFailed
from crypto.quantiser import Packing
from crypto.samplers import Stream

SEED = b"\x07" * 32


@pytest.fixture(scope="module", params=NAMES)
def bfv(request):
    return scheme(request.param)


@pytest.fixture(scope="module")
def keys(bfv):
    return bfv.keygen()


def values(bfv, count, seed=1):
    return Stream(seed.to_bytes(32, "big")).uniform(bfv.plain_modulus, count)


def summed(bfv, key, uploads):
    total = bfv.accumulator(key)
    for upload in uploads:
        total.add(upload)
    return total


def mod_sum(bfv, rows):
    total = rows[0].copy()
    for row in rows[1:]:
        total = (total + row) % np.uint64(bfv.plain_modulus)
    return total


def test_parameters_fit_each_other(bfv):
    assert bfv.degree == 4096
    assert bfv.plain_bits == bfv.plain_modulus.bit_length() - 1 >= 42
    assert bfv.max_terms >= 100


def test_the_documented_modulus_is_the_smallest_batching_prime_above_2_to_42():
    from sympy import isprime

    found = next(t for t in range((1 << 42) + 1, 1 << 43, 8192) if isprime(t))
    assert scheme("bfv-documented").plain_modulus == found


@pytest.mark.parametrize("cohort", range(3, 11))
def test_sums_of_packed_values_are_exact(bfv, keys, cohort):
    public, secret = keys
    packing = Packing(value_bits=16, cohort=cohort, plain_bits=bfv.plain_bits)
    assert packing.per == 2
    count = 9001
    rows = [Stream(bytes([i] * 32)).uniform(1 << 16, count) for i in range(cohort)]
    rows[0][:7] = 0xFFFF
    total = summed(bfv, public, [bfv.encrypt(public, packing.pack(row)) for row in rows])
    opened = bfv.decrypt(secret, total.to_bytes())
    assert total.count == cohort
    assert opened.size == total.coefficients == 2 * bfv.degree
    assert not opened[packing.coefficients(count) :].any()
    unpacked = packing.unpack(opened[: packing.coefficients(count)], count)
    assert np.array_equal(unpacked, sum(rows[1:], rows[0]))


def test_sums_are_mod_t_and_exact_at_the_allowed_number_of_terms(bfv, keys):
    public, secret = keys
    rows = [values(bfv, bfv.degree, seed) for seed in range(bfv.max_terms)]
    total = summed(bfv, public, [bfv.encrypt(public, row) for row in rows])
    assert np.array_equal(bfv.decrypt(secret, total.to_bytes()), mod_sum(bfv, rows))
    with pytest.raises(OutOfRange, match="may not be exact"):
        total.add(bfv.encrypt(public, rows[0]))


def test_o1_a_blinded_sum_opens_after_unblinding_only(bfv, keys):
    public, secret = keys
    rows = [values(bfv, 5000, seed) % np.uint64(1000) for seed in range(4)]
    total = summed(bfv, public, [bfv.encrypt(public, row) for row in rows])
    total.add_plain(bfv.blind(SEED, total.coefficients))
    opened = bfv.decrypt(secret, total.to_bytes())
    truth = np.zeros(opened.size, dtype=np.uint64)
    truth[:5000] = mod_sum(bfv, rows)
    assert np.mean(opened == truth) < 0.01
    assert np.array_equal(bfv.subtract(opened, bfv.blind(SEED, opened.size)), truth)
    wrong = bfv.subtract(opened, bfv.blind(b"\x08" * 32, opened.size))
    assert np.mean(wrong == truth) < 0.01


def uniformity(bfv, opened):
    bins = (opened.astype(object) * 64 // bfv.plain_modulus).astype(int)
    return stats.chisquare(np.bincount(bins, minlength=64)).pvalue


def test_o1_the_authority_sees_uniform_noise(bfv, keys):
    public, secret = keys
    total = summed(bfv, public, [bfv.encrypt(public, np.zeros(30_000, dtype=np.uint64) + 7)] * 3)
    unblinded = bfv.decrypt(secret, total.to_bytes())
    total.add_plain(bfv.blind(SEED, total.coefficients))
    blinded = bfv.decrypt(secret, total.to_bytes())
    assert uniformity(bfv, unblinded) < 1e-6  # the control: without a blind the test does fail
    assert uniformity(bfv, blinded) > 1e-6
    assert uniformity(bfv, blinded & np.uint64(0xFFFF)) < 1e-6  # and it looks at all of t


def test_blinds_are_uniform_mod_t_and_belong_to_their_seed(bfv):
    blind = bfv.blind(SEED, 100_000)
    assert int(blind.max()) < bfv.plain_modulus
    assert uniformity(bfv, blind) > 1e-6
    low_bits = np.bincount((blind & np.uint64(63)).astype(int), minlength=64)
    assert stats.chisquare(low_bits).pvalue > 1e-6
    assert np.array_equal(bfv.blind(SEED, 100), blind[:100])
    assert not np.array_equal(bfv.blind(b"\x08" * 32, 100), blind[:100])


@settings(max_examples=30)
@given(st.data())
def test_subtract_inverts_addition_mod_t(data):
    bfv = scheme(data.draw(st.sampled_from(NAMES)))
    numbers = st.lists(st.integers(0, bfv.plain_modulus - 1), min_size=3, max_size=3)
    left, right = (np.array(data.draw(numbers), dtype=np.uint64) for _ in range(2))
    total = (left + right) % np.uint64(bfv.plain_modulus)
    assert np.array_equal(bfv.subtract(total, right), left)


def test_two_encryptions_of_one_vector_differ(bfv, keys):
    public, _ = keys
    row = values(bfv, 10)
    first, second = (np.frombuffer(bfv.encrypt(public, row), dtype=np.uint8) for _ in range(2))
    assert np.mean(first == second) < 0.05


def test_ciphertexts_and_keys_have_one_length(bfv, keys):
    public, _ = keys
    for count, ciphertexts in ((1, 1), (4096, 1), (4097, 2)):
        blob = bfv.encrypt(public, np.zeros(count, dtype=np.uint64))
        assert len(blob) == ciphertexts * bfv.ciphertext_bytes
    assert len(public.raw) == bfv.public_key_bytes


def test_accumulation_is_deterministic_and_commutes(bfv, keys):
    public, _ = keys
    uploads = [bfv.encrypt(public, values(bfv, 5000, seed)) for seed in range(3)]
    blobs = []
    for order in (uploads, uploads[::-1], uploads):
        total = summed(bfv, public, order)
        total.add_plain(bfv.blind(SEED, total.coefficients))
        blobs.append(total.to_bytes())
    assert blobs[0] == blobs[1] == blobs[2]


def test_plaintext_that_does_not_fit_is_refused(bfv, keys):
    public, _ = keys
    top = np.uint64(bfv.plain_modulus - 1)
    assert bfv.encrypt(public, np.array([top]))
    for wrong in (
        np.array([top + np.uint64(1)]),
        np.array([-1]),
        np.array([0.5]),
        np.zeros((2, 2), dtype=np.uint64),
        np.array([], dtype=np.uint64),
    ):
        with pytest.raises(OutOfRange):
            bfv.encrypt(public, wrong)


def test_a_blind_has_no_gap(bfv, keys):
    public, _ = keys
    total = bfv.accumulator(public)
    with pytest.raises(OutOfRange):
        total.to_bytes()
    with pytest.raises(OutOfRange):
        total.add_plain(bfv.blind(SEED, bfv.degree))
    total.add(bfv.encrypt(public, values(bfv, 10)))
    before = total.to_bytes()
    for wrong in (
        bfv.blind(SEED, 10),
        bfv.blind(SEED, bfv.degree + 1),
        np.full(bfv.degree, bfv.plain_modulus, dtype=np.uint64),
    ):
        with pytest.raises(OutOfRange):
            total.add_plain(wrong)
    with pytest.raises(OutOfRange):
        bfv.subtract(bfv.blind(SEED, 3), bfv.blind(SEED, 4))
    assert total.to_bytes() == before


def test_uploads_of_another_shape_are_refused_and_change_nothing(bfv, keys):
    public, secret = keys
    upload = bfv.encrypt(public, values(bfv, 5000))
    total = summed(bfv, public, [upload])
    width = bfv.ciphertext_bytes
    for wrong in (b"", upload[:-1], upload + b"\0", upload[:width], upload + upload[:width]):
        with pytest.raises(InvalidCiphertext):
            total.add(wrong)
    with pytest.raises(InvalidCiphertext):
        bfv.decrypt(secret, upload[:-1])
    assert total.count == 1
    assert np.array_equal(bfv.decrypt(secret, total.to_bytes())[:5000], values(bfv, 5000))


def test_o9_a_destroyed_key_opens_nothing(bfv):
    public, secret = bfv.keygen()
    blob = bfv.encrypt(public, values(bfv, 3))
    assert secret.key_id == public.key_id
    secret.destroy()
    secret.destroy()
    with pytest.raises(InvalidKey, match="destroyed"):
        bfv.decrypt(secret, blob)


def test_another_key_opens_noise(bfv, keys):
    public, _ = keys
    _, stranger = bfv.keygen()
    row = values(bfv, bfv.degree)
    assert np.mean(bfv.decrypt(stranger, bfv.encrypt(public, row)) == row) < 0.01


def test_scheme_names():
    assert scheme().name == NAMES[0]
    assert scheme() is scheme(NAMES[0])
    assert [scheme(name).name for name in NAMES] == list(NAMES)
    with pytest.raises(InvalidKey):
        scheme("bfv-unknown")


@pytest.fixture
def forgetful():
    for cached in (facade._preferred, facade._probed):
        cached.cache_clear()
    yield
    for cached in (facade._preferred, facade._probed):
        cached.cache_clear()


class Broken:
    """A road that adds one to the truth."""

    def __init__(self):
        self._real = scheme(NAMES[1])

    def __getattr__(self, name):
        return getattr(self._real, name)

    def subtract(self, values, blind):
        return self._real.subtract(values, blind) + np.uint64(1)


def no_library():
    raise ImportError("no such binding")


@pytest.mark.parametrize("broken", [Broken, no_library])
@pytest.mark.usefixtures("forgetful")
def test_a_road_that_fails_its_probe_is_left_only_when_nobody_asked_for_it(monkeypatch, broken):
    real = facade._build
    replacement = broken() if broken is Broken else None
    monkeypatch.setattr(
        facade,
        "_build",
        lambda name: real(name) if name != NAMES[0] else replacement or broken(),
    )
    assert scheme().name == NAMES[1]
    with pytest.raises(SelfTestFailed):
        scheme(NAMES[0])
    monkeypatch.setattr(facade, "_build", real)
    assert scheme().name == NAMES[1]  # the choice stays for the life of the process
