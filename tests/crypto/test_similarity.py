"""Encrypted cosines: right numbers, one coefficient for the authority, and what breaks without."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from crypto.aead import new_key
from crypto.errors import CryptoError, InvalidCiphertext, InvalidKey, InvalidSeal, OutOfRange
from crypto.homomorphic.bfv import DEGREE
from crypto.homomorphic.he import scheme
from crypto.homomorphic.seal import pack60
from crypto.homomorphic.similarity import PRODUCT_BYTES, Similarity, polynomials, unit
from crypto.samplers import Mute, entropy
from tests.crypto.cosines import (
    KEY,
    NO_ZERO,
    PUBLIC,
    RING,
    SECRET,
    SLOT_MASK,
    UNMASKED,
    Q,
    coefficients,
    cosine,
    opened,
    operands,
    points,
    vectors,
    words_of,
)
from tests.crypto.known import mutations

UPLOAD = RING.upload(PUBLIC, np.arange(1.0, 50.0))
PRODUCT = RING.product(PUBLIC, RING.operand(UPLOAD), RING.operand(UPLOAD), bytes(32))
UNIFORM = 1e-12  # a p-value below it is no chance in a test that runs for ever, with new keys


@pytest.mark.parametrize("d", [1, 2, 128, 2047, 2048, 2049, 7000])
def test_o3_opened_cosines_are_those_of_the_plaintext(d):
    rows = vectors(3, d)
    ready = operands(rows)
    for i, j in itertools.product(range(3), repeat=2):
        found = RING.cosine(SECRET, RING.product(PUBLIC, ready[i], ready[j], entropy(32)))
        assert abs(found - cosine(rows[i], rows[j])) <= 2.0**-15 + 1e-5
        assert found * 2**14 == int(found * 2**14)
        if i == j:
            assert found == 1.0


def test_o3_the_edges_of_the_scale():
    rng = np.random.default_rng(3)
    row = rng.standard_normal(300)
    first, opposite = operands([row, -1e-200 * row])
    assert RING.cosine(SECRET, RING.product(PUBLIC, first, opposite, entropy(32))) == -1.0
    alone = [np.eye(2050)[place] for place in (0, 1, 2047, 2048, 2049)]
    ready = operands(alone)
    for i, j in itertools.product(range(len(alone)), repeat=2):
        found = RING.cosine(SECRET, RING.product(PUBLIC, ready[i], ready[j], entropy(32)))
        assert found == float(i == j)


def test_o3_every_coefficient_but_the_first_is_the_mask():
    rows = vectors(2, 5000)
    ready, seed = operands(rows), entropy(32)
    masked = opened(words_of(RING.product(PUBLIC, *ready, seed)))
    bare = opened(words_of(UNMASKED.product(PUBLIC, *ready, seed)))
    assert np.array_equal((masked - bare) % Q, RING._mask(seed)[0].astype(object))
    assert np.flatnonzero(masked == bare).tolist() == [0]  # not one of the others stands bare
    assert abs(masked[0] / 2**57 - cosine(*rows)) < 1e-5
    for seen, uniform in ((masked, True), (bare, False)):  # bare is the control
        share = (seen[1:] % Q / Q).astype(float)
        assert (stats.kstest(share, "uniform").pvalue > UNIFORM) == uniform
        pairs = stats.pearsonr(share[:2000], share[:-2001:-1])
        assert (pairs.pvalue > UNIFORM) == uniform  # bare: coefficient k is minus that of N-k


def test_o3_each_product_has_its_own_mask_and_zero():
    ready = operands(vectors(2, 100))
    seeds = [entropy(32) for _ in range(3)]
    seen = [words_of(RING.product(PUBLIC, *ready, seed)) for seed in seeds]
    for first, second in itertools.combinations(seen, 2):
        for part in range(3):
            apart = (first[part].astype(object) - second[part].astype(object)) % Q
            assert stats.kstest((apart / Q).astype(float), "uniform").pvalue > UNIFORM
        inside = (opened(first) - opened(second)) % Q / Q  # the zeros are gone, masks are left
        assert stats.kstest(inside[1:].astype(float), "uniform").pvalue > UNIFORM


def test_o3_the_zero_is_one_and_small():
    seed, ready = entropy(32), operands(vectors(2, 2))
    with_zero = words_of(RING.product(PUBLIC, *ready, seed)).astype(object)
    zero = (with_zero - words_of(NO_ZERO.product(PUBLIC, *ready, seed))) % Q  # one mask in both
    noise = opened(zero.astype(np.uint64)).astype(float)
    assert noise.any()
    assert np.abs(noise).max() < 2**20  # a step of the grid is 2^43
    for part in zero:
        assert stats.kstest((part / Q).astype(float), "uniform").pvalue > UNIFORM


def test_o3_every_part_of_the_zero_carries_noise_of_its_own():
    class Noiseless(Similarity):
        def _noise(self, chance):
            return np.zeros((3, DEGREE), dtype=np.uint64)

    seed, ready = entropy(32), operands(vectors(2, 2))
    seen = [words_of(r.product(PUBLIC, *ready, seed)).astype(object) for r in (RING, Noiseless())]
    draws = (seen[0] - seen[1]) % Q
    small = np.where(draws > Q // 2, draws - Q, draws).astype(float)
    assert np.abs(small).max() <= 21
    for part in small:
        assert abs(part.mean()) < 0.4  # seven standard errors
        assert 3.0 < part.std() < 3.5
    assert np.abs(np.corrcoef(small) - np.eye(3)).max() < 0.1


def imaginary_slots(ring, ready, count) -> np.ndarray:
    """The authority's slots of every pair, imaginary parts only: shape (K, K, count)."""
    turn = np.exp(1j * np.pi * np.arange(DEGREE) / DEGREE)
    seen = np.zeros((len(ready), len(ready), count))
    for i, j in itertools.combinations(range(len(ready)), 2):
        whole = opened(words_of(ring.product(PUBLIC, ready[i], ready[j], entropy(32))))
        seen[i, j] = seen[j, i] = np.fft.fft(whole.astype(float) * turn).imag[:count]
    return seen


def recovered(seen: np.ndarray, truth: np.ndarray) -> list[float]:
    """Fit u f' + f u' to each slot's table; |cosine| of u or f with the truth across clients."""
    clients = len(seen)
    i, j = np.triu_indices(clients, 1)
    out = []
    for slot in range(seen.shape[2]):
        table = seen[:, :, slot][i, j]
        table = table / np.abs(table).max()

        def beside(w, table=table):
            u, f = w[:clients], w[clients:]
            return u[i] * f[j] + u[j] * f[i] - table

        starts = np.random.default_rng(slot).standard_normal((6, 2 * clients))
        fits = (optimize.least_squares(beside, start, method="lm") for start in starts)
        best = min(fits, key=lambda fit: fit.cost).x
        u, f, true = best[:clients], best[clients:], truth[:, slot]
        out.append(max(abs(cosine(u, true)), abs(cosine(f, true))))
    return out


def test_o3_imaginary_slots_give_vectors_away_only_under_the_old_mask():
    rows, slots = vectors(7, 500), 8
    ready = operands(rows)
    turn = np.exp(1j * np.pi * np.arange(DEGREE) / DEGREE)
    laid = np.array([polynomials(unit(row), DEGREE, 28)[0] for row in rows])
    truth = np.fft.fft(laid * turn, axis=1)[:, :slots]
    assert np.abs(truth.imag).max() < 1e-6 * np.abs(truth.real).max()
    old = recovered(imaginary_slots(SLOT_MASK, ready, slots), truth.real)
    assert np.median(old) > 0.99  # the control: each slot's numbers, up to one factor
    new = recovered(imaginary_slots(RING, ready, slots), truth.real)
    assert np.median(new) < 0.9
    # The old mask does hide the real parts and leaves the cosine alone: it looked right.
    found = SLOT_MASK.cosine(SECRET, SLOT_MASK.product(PUBLIC, *ready[:2], entropy(32)))
    assert abs(found - cosine(*rows[:2])) < 1e-4


def without_the_mask(products: dict) -> np.ndarray:
    """Three products' c1/c2 are g_i + g_j: every coefficient of the first, mask or not."""
    seen = {pair: points(words_of(product)[1:]) for pair, product in products.items()}
    sums = {
        pair: np.array([int(a) * pow(int(b), -1, Q) % Q for a, b in zip(c1, c2, strict=True)])
        for pair, (c1, c2) in seen.items()
    }
    sums = {pair: values.astype(object) for pair, values in sums.items()}
    half = pow(2, -1, Q)
    g0 = (sums[0, 1] + sums[0, 2] - sums[1, 2]) * half
    g1 = sums[0, 1] - g0
    return coefficients(seen[0, 1][1] * (g0 + KEY) * (g1 + KEY) % Q)


def test_o3_without_a_fresh_zero_the_authority_takes_the_mask_off():
    ready = operands(vectors(3, 200))
    seeds = {pair: entropy(32) for pair in itertools.combinations(range(3), 2)}

    def view(ring):
        return {
            (i, j): ring.product(PUBLIC, ready[i], ready[j], seed) for (i, j), seed in seeds.items()
        }

    masked = opened(words_of(view(NO_ZERO)[0, 1]))
    truth = (masked - RING._mask(seeds[0, 1])[0].astype(object)) % Q
    truth = np.where(truth > Q // 2, truth - Q, truth)
    assert np.array_equal(without_the_mask(view(NO_ZERO)), truth)  # the control
    assert np.mean(without_the_mask(view(RING)) == truth) < 0.01


def test_o4_a_witness_recomputes_every_byte():
    rows = vectors(2, 3000)
    uploads = [RING.upload(PUBLIC, row) for row in rows]
    seed = entropy(32)
    sent = RING.product(PUBLIC, *map(RING.operand, uploads), seed)
    witness = Similarity()
    key = witness.load_public(PUBLIC.raw)
    again = witness.product(key, *map(witness.operand, uploads), seed)
    swapped = witness.product(key, *map(witness.operand, uploads[::-1]), seed)
    assert again == swapped == sent
    other = [RING.upload(PUBLIC, rows[0]), uploads[1]]  # the same vector, encrypted again
    assert witness.product(key, *map(witness.operand, other), seed) != sent
    assert witness.product(key, *map(witness.operand, uploads), entropy(32)) != sent


def test_a_seed_used_twice_gives_the_difference_of_two_products_away():
    ready, seed = operands(vectors(3, 64)), entropy(32)
    first, second = (words_of(RING.product(PUBLIC, ready[0], ready[k], seed)) for k in (1, 2))
    apart = opened(((first.astype(object) - second.astype(object)) % Q).astype(np.uint64))
    assert np.abs(apart.astype(float)).max() < 2**57.5  # both masks are gone
    bare = [opened(words_of(UNMASKED.product(PUBLIC, ready[0], ready[k], seed))) for k in (1, 2)]
    assert np.array_equal(apart, bare[0] - bare[1])


def test_o9_sizes_and_keys_are_fixed_and_no_key_serves_anything_else():
    upload = RING.upload(PUBLIC, np.ones(2049))
    assert len(upload) == 2 * RING.ciphertext_bytes == 122_880
    assert len(PUBLIC.raw) == RING.public_key_bytes == 40 + 32 + 32_768
    ready = RING.operand(upload)
    assert len(RING.product(PUBLIC, ready, ready, entropy(32))) == PRODUCT_BYTES == 92_160
    other = scheme("bfv-sealapi")
    foreign, foreign_secret = other.keygen()
    with pytest.raises(InvalidKey):
        RING.load_public(foreign.raw)
    with pytest.raises(InvalidKey):
        RING.product(foreign, ready, ready, entropy(32))
    with pytest.raises(InvalidKey):
        RING.cosine(foreign_secret, bytes(PRODUCT_BYTES))
    assert isinstance(SECRET, Mute)


def test_o9_a_locked_key_opens_after_a_restart_and_a_destroyed_one_never():
    public, secret = RING.keygen()
    ready = RING.operand(RING.upload(public, np.ones(5)))
    product = RING.product(public, ready, ready, entropy(32))
    under = new_key()
    again = RING.unlock_secret(RING.lock_secret(secret, under), public, under)
    assert RING.cosine(again, product) == 1.0
    with pytest.raises(InvalidSeal):
        RING.unlock_secret(RING.lock_secret(secret, under), public, new_key())
    secret.destroy()
    with pytest.raises(InvalidKey):
        RING.cosine(secret, product)


def test_o4_nothing_but_a_masked_product_is_opened():
    upload = RING.upload(PUBLIC, np.ones(5))
    with pytest.raises(InvalidCiphertext):
        RING.decrypt(SECRET, upload)
    with pytest.raises(InvalidCiphertext):
        RING.cosine(SECRET, upload)


@pytest.mark.parametrize("length", [1.001, 2.0, -1.5])
def test_a_vector_longer_than_one_is_refused_against_itself(length):
    signed = polynomials(length * unit(np.arange(1.0, 40.0)), DEGREE, 28)[0]
    packed = (signed % RING.plain_modulus).astype(np.uint64)
    ready = RING.operand(RING.encrypt(PUBLIC, packed))
    with pytest.raises(InvalidCiphertext):
        RING.cosine(SECRET, RING.product(PUBLIC, ready, ready, entropy(32)))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_bytes_that_are_no_product_are_refused(part):
    ready = RING.operand(RING.upload(PUBLIC, np.ones(5)))
    good = RING.product(PUBLIC, ready, ready, entropy(32))
    assert RING.cosine(SECRET, good) == 1.0  # the control
    words = words_of(good).copy()
    words[2] = 0
    above = words_of(good).copy()
    above[part, 7] = Q
    for wrong in (pack60(words), pack60(above), good[:-1], good + b"\0", b""):
        with pytest.raises(InvalidCiphertext):
            RING.cosine(SECRET, wrong)


@settings(max_examples=40)
@given(data=st.data())
def test_mutated_products_and_uploads_never_crash(data):
    for use, blob in ((RING.operand, UPLOAD), (lambda p: RING.cosine(SECRET, p), PRODUCT)):
        try:
            use(data.draw(mutations(blob)))
        except CryptoError as refusal:
            assert isinstance(refusal, InvalidCiphertext)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros(4), np.ones((2, 2)), np.array([]), np.array([1.0, np.nan]), np.array([np.inf])],
    ids=["zero", "table", "empty", "nan", "infinite"],
)
def test_a_vector_without_a_direction_is_refused(wrong):
    with pytest.raises(OutOfRange):
        RING.upload(PUBLIC, wrong)


def test_zeros_made_ahead_and_unequal_lengths():
    row = np.arange(1.0, 3000.0)
    ahead = RING.upload(PUBLIC, row, RING.zeros(PUBLIC, RING.ciphertexts(row.size)))
    first, second = RING.operand(ahead), RING.operand(RING.upload(PUBLIC, row))
    assert RING.cosine(SECRET, RING.product(PUBLIC, first, second, entropy(32))) == 1.0
    with pytest.raises(OutOfRange):
        RING.upload(PUBLIC, row, RING.zeros(PUBLIC, 1))
    with pytest.raises(OutOfRange, match="different lengths"):
        RING.product(PUBLIC, first, RING.operand(UPLOAD), entropy(32))
    for seed in (b"", bytes(31), bytes(33)):
        with pytest.raises(InvalidKey):
            RING.product(PUBLIC, first, second, seed)
