"""Exact sums under encryption, under every scheme."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from crypto.errors import InvalidCiphertext, InvalidKey, OutOfRange, SelfTestFailed
from crypto.homomorphic import he as facade
from crypto.homomorphic.he import NAMES, scheme
from crypto.quantiser import Packing
from crypto.samplers import Stream

SEED = b"\x07" * 32


@pytest.fixture(scope="module", params=NAMES)
def he(request):
    return scheme(request.param)


KEYS = {name: scheme(name).keygen() for name in NAMES}


@pytest.fixture(scope="module")
def keys(he):
    return KEYS[he.name]


def values(he, count, seed=1):
    return Stream(seed.to_bytes(32, "big")).uniform(he.plain_modulus, count)


def summed(he, key, uploads):
    total = he.accumulator(key)
    for upload in uploads:
        total.add(upload)
    return total


def mod_sum(he, rows):
    total = rows[0].copy()
    for row in rows[1:]:
        total = (total + row) % np.uint64(he.plain_modulus)
    return total


def test_parameters_fit_each_other(he):
    bits = {"bfv-sealapi": 44, "bfv48-sealapi": 48, "ckks-sealapi": 26}
    assert he.degree == 4096
    assert he.plain_bits == he.plain_modulus.bit_length() - 1 == bits[he.name]
    assert he.max_terms >= 100
    assert he.offline


@pytest.mark.parametrize(("name", "value_bits", "per"), [
    ("bfv-sealapi", 16, 2),
    ("bfv48-sealapi", 12, 3), ("bfv48-sealapi", 16, 2), ("ckks-sealapi", 16, 1),
])  # fmt: skip
def test_how_many_values_a_coefficient_holds(name, value_bits, per):
    for cohort in (3, 10):
        packing = Packing(value_bits, cohort, scheme(name).plain_bits)
        assert packing.per == per


@pytest.mark.parametrize("cohort", range(3, 11))
def test_sums_of_packed_values_are_exact(he, keys, cohort):
    public, secret = keys
    bits = 12 if he.name == "bfv48-sealapi" else 16
    packing = Packing(value_bits=bits, cohort=cohort, plain_bits=he.plain_bits)
    count = 4500 * packing.per
    rows = [Stream(bytes([i] * 32)).uniform(1 << bits, count) for i in range(cohort)]
    rows[0][:7] = (1 << bits) - 1
    total = summed(he, public, [he.encrypt(public, packing.pack(row)) for row in rows])
    opened = he.decrypt(secret, total.to_bytes())
    assert total.count == cohort
    assert opened.size == total.coefficients == 2 * he.degree
    assert not opened[packing.coefficients(count) :].any()
    unpacked = packing.unpack(opened[: packing.coefficients(count)], count)
    assert np.array_equal(unpacked, sum(rows[1:], rows[0]))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(data=st.data())
def test_sums_agree_with_numpy(name, data):
    he, (public, secret) = scheme(name), KEYS[name]
    t = he.plain_modulus
    edges = [0, 1, t // 2 - 1, t // 2, t // 2 + 1, t - 1]
    numbers = st.sampled_from(edges) | st.integers(0, t - 1)
    count = data.draw(st.integers(1, 40))
    clients = data.draw(st.integers(1, 5))
    row = st.lists(numbers, min_size=count, max_size=count)
    rows = [np.array(data.draw(row), dtype=np.uint64) for _ in range(clients)]
    total = summed(he, public, [he.encrypt(public, row) for row in rows])
    if data.draw(st.booleans()):
        extra = np.zeros(total.coefficients, dtype=np.uint64)
        extra[:count] = data.draw(row)
        total.add_plain(extra)
        rows.append(extra[:count])
    opened = he.decrypt(secret, total.to_bytes())
    assert np.array_equal(opened[:count], mod_sum(he, rows))
    assert not opened[count:].any()


def test_sums_are_mod_t_and_exact_at_the_allowed_number_of_terms(he, keys):
    public, secret = keys
    rows = [values(he, he.degree, seed) for seed in range(he.max_terms)]
    total = summed(he, public, [he.encrypt(public, row) for row in rows])
    assert np.array_equal(he.decrypt(secret, total.to_bytes()), mod_sum(he, rows))
    with pytest.raises(OutOfRange, match="may not be exact"):
        total.add(he.encrypt(public, rows[0]))


def test_o1_a_blinded_sum_opens_after_unblinding_only(he, keys):
    public, secret = keys
    rows = [values(he, 5000, seed) % np.uint64(1000) for seed in range(4)]
    total = summed(he, public, [he.encrypt(public, row) for row in rows])
    total.add_plain(he.blind(SEED, total.coefficients))
    opened = he.decrypt(secret, total.to_bytes())
    truth = np.zeros(opened.size, dtype=np.uint64)
    truth[:5000] = mod_sum(he, rows)
    assert np.mean(opened == truth) < 0.01
    assert np.array_equal(he.subtract(opened, he.blind(SEED, opened.size)), truth)
    wrong = he.subtract(opened, he.blind(b"\x08" * 32, opened.size))
    assert np.mean(wrong == truth) < 0.01


def uniformity(he, opened):
    bins = (opened.astype(object) * 64 // he.plain_modulus).astype(int)
    return stats.chisquare(np.bincount(bins, minlength=64)).pvalue


def test_o1_the_authority_sees_uniform_noise(he, keys):
    public, secret = keys
    total = summed(he, public, [he.encrypt(public, np.zeros(30_000, dtype=np.uint64) + 7)] * 3)
    unblinded = he.decrypt(secret, total.to_bytes())
    total.add_plain(he.blind(SEED, total.coefficients))
    blinded = he.decrypt(secret, total.to_bytes())
    assert uniformity(he, unblinded) < 1e-6  # the control: without a blind the test does fail
    assert uniformity(he, blinded) > 1e-6
    assert uniformity(he, blinded & np.uint64(0xFFFF)) < 1e-6  # and it looks at all of t


def test_blinds_are_uniform_mod_t_and_belong_to_their_seed(he):
    blind = he.blind(SEED, 100_000)
    assert int(blind.max()) < he.plain_modulus
    assert uniformity(he, blind) > 1e-6
    low_bits = np.bincount((blind & np.uint64(63)).astype(int), minlength=64)
    assert stats.chisquare(low_bits).pvalue > 1e-6
    assert np.array_equal(he.blind(SEED, 100), blind[:100])
    assert not np.array_equal(he.blind(b"\x08" * 32, 100), blind[:100])


@settings(max_examples=30)
@given(st.data())
def test_subtract_inverts_addition_mod_t(data):
    he = scheme(data.draw(st.sampled_from(NAMES)))
    numbers = st.lists(st.integers(0, he.plain_modulus - 1), min_size=3, max_size=3)
    left, right = (np.array(data.draw(numbers), dtype=np.uint64) for _ in range(2))
    total = (left + right) % np.uint64(he.plain_modulus)
    assert np.array_equal(he.subtract(total, right), left)


def test_two_encryptions_of_one_vector_differ(he, keys):
    public, _ = keys
    row = values(he, 10)
    first, second = (np.frombuffer(he.encrypt(public, row), dtype=np.uint8) for _ in range(2))
    assert np.mean(first == second) < 0.15  # the top byte of a word below 2^54 is always zero


def test_ciphertexts_and_keys_have_one_length(he, keys):
    public, _ = keys
    for count, ciphertexts in ((1, 1), (4096, 1), (4097, 2)):
        blob = he.encrypt(public, np.zeros(count, dtype=np.uint64))
        assert len(blob) == ciphertexts * he.ciphertext_bytes
        assert len(summed(he, public, [blob, blob]).to_bytes()) == len(blob)
    assert len(public.raw) == he.public_key_bytes


@pytest.mark.parametrize(("name", "width"), [
    ("bfv-sealapi", 61_440), ("bfv48-sealapi", 61_440), ("ckks-sealapi", 65_536),
])  # fmt: skip
def test_ciphertexts_take_the_bytes_that_their_words_need(name, width):
    assert scheme(name).ciphertext_bytes == width


def test_accumulation_is_deterministic_and_commutes(he, keys):
    public, _ = keys
    uploads = [he.encrypt(public, values(he, 5000, seed)) for seed in range(3)]
    blobs = []
    for order in (uploads, uploads[::-1], uploads):
        total = summed(he, public, order)
        total.add_plain(he.blind(SEED, total.coefficients))
        blobs.append(total.to_bytes())
    assert blobs[0] == blobs[1] == blobs[2]


def test_plaintext_that_does_not_fit_is_refused(he, keys):
    public, _ = keys
    top = np.uint64(he.plain_modulus - 1)
    assert he.encrypt(public, np.array([top]))
    for wrong in (
        np.array([top + np.uint64(1)]),
        np.array([-1]),
        np.array([0.5]),
        np.zeros((2, 2), dtype=np.uint64),
        np.array([], dtype=np.uint64),
    ):
        with pytest.raises(OutOfRange):
            he.encrypt(public, wrong)


def test_a_blind_has_no_gap(he, keys):
    public, _ = keys
    total = he.accumulator(public)
    with pytest.raises(OutOfRange):
        total.to_bytes()
    with pytest.raises(OutOfRange):
        total.add_plain(he.blind(SEED, he.degree))
    total.add(he.encrypt(public, values(he, 10)))
    before = total.to_bytes()
    for wrong in (
        he.blind(SEED, 10),
        he.blind(SEED, he.degree + 1),
        np.full(he.degree, he.plain_modulus, dtype=np.uint64),
    ):
        with pytest.raises(OutOfRange):
            total.add_plain(wrong)
    with pytest.raises(OutOfRange):
        he.subtract(he.blind(SEED, 3), he.blind(SEED, 4))
    assert total.to_bytes() == before


def test_uploads_of_another_shape_are_refused_and_change_nothing(he, keys):
    public, secret = keys
    upload = he.encrypt(public, values(he, 5000))
    total = summed(he, public, [upload])
    width = he.ciphertext_bytes
    for wrong in (b"", upload[:-1], upload + b"\0", upload[:width], upload + upload[:width]):
        with pytest.raises(InvalidCiphertext):
            total.add(wrong)
    with pytest.raises(InvalidCiphertext):
        he.decrypt(secret, upload[:-1])
    assert total.count == 1
    assert np.array_equal(he.decrypt(secret, total.to_bytes())[:5000], values(he, 5000))


def test_o9_a_destroyed_key_opens_nothing(he):
    public, secret = he.keygen()
    blob = he.encrypt(public, values(he, 3))
    assert secret.key_id == public.key_id
    secret.destroy()
    secret.destroy()
    with pytest.raises(InvalidKey, match="destroyed"):
        he.decrypt(secret, blob)


def test_another_key_opens_noise(he, keys):
    public, _ = keys
    _, stranger = he.keygen()
    row = values(he, he.degree)
    upload = he.encrypt(public, row)
    if he.name == "ckks-sealapi":  # noise lies beside the grid
        with pytest.raises(InvalidCiphertext):
            he.decrypt(stranger, upload)
    else:
        assert np.mean(he.decrypt(stranger, upload) == row) < 0.01


def test_scheme_names():
    assert scheme() is scheme(NAMES[0])
    assert [scheme(name).name for name in NAMES] == list(NAMES)
    with pytest.raises(InvalidKey):
        scheme("bfv-unknown")


@pytest.fixture
def forgetful():
    facade._probed.cache_clear()
    yield
    facade._probed.cache_clear()


class Broken:
    """A scheme that adds one to the truth."""

    def __init__(self):
        self._real = scheme(NAMES[0])

    def __getattr__(self, name):
        return getattr(self._real, name)

    def subtract(self, values, blind):
        return self._real.subtract(values, blind) + np.uint64(1)


def no_library():
    raise ImportError("no such binding")


def another_library():
    raise AttributeError("no such name in the bindings")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("broken", [Broken, no_library, another_library])
@pytest.mark.usefixtures("forgetful")
def test_a_scheme_that_fails_is_never_replaced(monkeypatch, name, broken):
    replacement = broken() if broken is Broken else None
    scheme(name)  # the control
    facade._probed.cache_clear()
    monkeypatch.setattr(facade, "_build", lambda _: replacement or broken())
    with pytest.raises(SelfTestFailed, match=r"did not|not installed"):
        scheme(name)


WITHOUT_BINDINGS = """
import sys
sys.modules["tenseal.sealapi"] = None
from crypto.errors import SelfTestFailed
from crypto.homomorphic.he import NAMES, scheme

def similarity():
    from crypto.homomorphic.similarity import similarity
    similarity()

def weighted():
    from crypto.homomorphic.weighted import weighted
    weighted()

for ask in [lambda name=name: scheme(name) for name in NAMES] + [similarity, weighted]:
    try:
        ask()
    except SelfTestFailed as refused:
        print(*refused.diagnostics())
"""


def test_without_the_bindings_nothing_is_encrypted_and_the_refusal_says_what_to_do():
    asked = [sys.executable, "-c", WITHOUT_BINDINGS]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) == len(NAMES) + 2
    for line in said:
        assert "bindings (tenseal.sealapi) are not there, so nothing is encrypted." in line
        assert "Reinstall the pinned dependencies" in line
