"""Weighted sums of ciphertexts: exact, one per receiver, opened blind, recomputed by a witness."""

from __future__ import annotations

import numpy as np
import pytest
import tenseal.sealapi as seal
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from crypto.errors import InvalidCiphertext, InvalidKey, OutOfRange
from crypto.homomorphic.bfv import DEGREE
from crypto.homomorphic.he import scheme
from crypto.homomorphic.seal import Scratch
from crypto.homomorphic.weighted import (
    FLOOD,
    MAX_SQUARES,
    PRIME,
    TOTAL,
    WeightedBfv,
    Weights,
    _combined,
    _factors,
    _flood,
    flatten,
    weighted,
)
from crypto.quantiser import Packing
from crypto.samplers import Stream, entropy

RING = weighted()
PUBLIC, SECRET = RING.keygen()
T = RING.plain_modulus
CLIENTS = 5


def uniform(count: int = DEGREE) -> np.ndarray:
    return Stream(entropy(32)).uniform(T, count)


def some_weights(clients: int = CLIENTS, seed: int = 1, total: int = TOTAL) -> Weights:
    rows = np.random.default_rng(seed).uniform(0.5, 1, (clients, clients))
    rows += 2 * np.eye(clients)
    return flatten(rows / rows.sum(axis=1, keepdims=True), total=total)


def made(rows, weights: Weights, ring: WeightedBfv = RING):
    uploads = [ring.encrypt(PUBLIC, row) for row in rows]
    seeds = [entropy(32) for _ in rows]
    return uploads, seeds, ring.combine(PUBLIC, uploads, weights, seeds)


def truth(rows, weights: Weights) -> np.ndarray:
    padded = [np.pad(row, (0, -row.size % DEGREE)) for row in rows]
    whole = weights.table.astype(object) @ np.array(padded).astype(object)
    return (whole % T).astype(np.uint64)


@pytest.mark.parametrize("count", [1, DEGREE, 2 * DEGREE + 3])
def test_o1_each_receiver_reads_its_own_combination_exactly(count):
    rows, weights = [uniform(count) for _ in range(CLIENTS)], some_weights()
    _, seeds, blinded = made(rows, weights)
    for seed, blob, expected in zip(seeds, blinded, truth(rows, weights), strict=True):
        opened = RING.decrypt(SECRET, blob)
        plain = RING.subtract(opened, RING.blind(seed, opened.size))
        assert np.array_equal(plain, expected)


@pytest.mark.parametrize("total", [128, 256])
def test_the_heaviest_rows_open_exactly_and_with_the_noise_of_the_formula(total):
    own = next(w for w in range(total, 0, -1) if w**2 + 4 * ((total - w) // 4) ** 2 <= MAX_SQUARES)
    own -= (own - total) % 4
    table = np.full((CLIENTS, CLIENTS), (total - own) // 4) + np.eye(CLIENTS, dtype=np.int64) * (
        own - (total - own) // 4
    )
    rows, weights = [uniform() for _ in range(CLIENTS)], Weights(table.astype(np.int64), total)
    _, seeds, blinded = made(rows, weights)
    opened = RING.decrypt(SECRET, blinded[0])
    assert np.array_equal(
        RING.subtract(opened, RING.blind(seeds[0], DEGREE)), truth(rows, weights)[0]
    )
    noise = residues(RING.parse(blinded[0])[0])
    deviation = 15.1 * np.sqrt((weights.table[0] ** 2).sum())
    flood = _flood(seeds[0], 1).astype(object)
    flood = np.where(flood > PRIME // 2, flood - PRIME, flood).astype(float)
    # Of 4,096 new draws each of these fails less than once in 10^12 times.
    assert flood.min() < -0.98 * FLOOD and flood.max() > 0.98 * FLOOD and abs(flood.mean()) < 600
    assert 0.9 < (noise - flood).std() / deviation < 1.1
    assert 12 * deviation + FLOOD < PRIME / T / 2


def residues(words: np.ndarray) -> np.ndarray:
    """What the authority sees beside the plaintext: the noise of one ciphertext."""
    beside = (phases(words) * T + PRIME // 2) % PRIME - PRIME // 2
    return (beside / T).astype(float)


def phases(words: np.ndarray) -> np.ndarray:
    """c0 + c1 s mod q in doubles, 30 bits at a time; s comes out of the authority's decryptor."""
    spectrum = RING_KEY
    half = 1 << 30
    turn = np.exp(1j * np.pi * np.arange(DEGREE) / DEGREE)
    parts = []
    for digits in (words[DEGREE:] % half, words[DEGREE:] // half):
        product = np.fft.ifft(np.fft.fft(digits.astype(float) * turn) * spectrum) / turn
        parts.append(np.rint(product.real).astype(np.int64).astype(object))
    phase = (words[:DEGREE].astype(object) + parts[0] + parts[1] * half) % PRIME
    return np.where(phase > PRIME // 2, phase - PRIME, phase)


def key_spectrum() -> np.ndarray:
    """The ternary key at the complex roots: what ciphertexts (0, D X^0) open as, D = q/t."""
    words = np.zeros((1, 2 * DEGREE), dtype=np.uint64)
    words[0, DEGREE] = PRIME // T
    signed = RING.decrypt(SECRET, RING.to_wire(words)).astype(np.int64)
    key = np.where(signed > T // 2, signed - T, signed)
    assert set(key) == {-1, 0, 1}
    return np.fft.fft(key * np.exp(1j * np.pi * np.arange(DEGREE) / DEGREE))


RING_KEY = key_spectrum()


@settings(max_examples=25)
@given(data=st.data())
def test_words_are_combined_as_whole_numbers_would_be(data):
    clients = data.draw(st.integers(4, 40))
    edges = st.sampled_from([0, 1, (1 << 30) - 1, 1 << 30, PRIME - 1, PRIME // 2])
    numbers = st.lists(edges | st.integers(0, PRIME - 1), min_size=clients, max_size=clients)
    words = np.array([data.draw(numbers) for _ in range(6)], dtype=np.uint64).T.copy()
    table = np.zeros((clients, clients), dtype=np.int64)
    if data.draw(st.booleans()):
        table[np.arange(clients), np.arange(clients)] = 128  # entry by entry
    else:
        table[:] = data.draw(
            st.lists(st.integers(0, 256), min_size=clients, max_size=clients).filter(any)
        )
        table = np.where(np.cumsum(table, axis=1) <= 256, table, 0)
    expected = table.astype(object) @ words.astype(object) % PRIME
    assert np.array_equal(_combined(_factors(table), words).astype(object), expected)


def test_a_combination_is_what_seal_makes_of_it():
    rows, weights = [uniform() for _ in range(CLIENTS)], some_weights()
    uploads, seeds, blinded = made(rows, weights)
    heads, context = RING._heads, RING._context
    evaluator, total, plain = seal.Evaluator(context), None, seal.Plaintext()
    with Scratch() as scratch:
        for upload, weight in zip(uploads, weights.table[0], strict=True):
            part = seal.Ciphertext(context)
            part.load(context, scratch.put(heads.ciphertext, RING.parse(upload)[0]))
            constant = np.zeros(DEGREE, dtype="<u8")
            constant[0] = weight
            plain.load(context, scratch.put(heads.plaintext, constant))
            evaluator.multiply_plain_inplace(part, plain)
            if total is None:
                total = part
            else:
                evaluator.add_inplace(total, part)
        words = np.frombuffer(heads.cut(scratch.dump(total), heads.ciphertext), "<u8")
    blind = RING.blind(seeds[0], DEGREE)
    shifted = RING.shifted(words.reshape(1, -1), blind.reshape(1, -1)).astype(object)
    shifted[0, :DEGREE] = (shifted[0, :DEGREE] + _flood(seeds[0], 1).astype(object)) % PRIME
    assert RING.to_wire(shifted.astype(np.uint64)) == blinded[0]


def test_o4_a_witness_recomputes_every_byte():
    rows, weights = [uniform(DEGREE + 1) for _ in range(CLIENTS)], some_weights()
    uploads, seeds, sent = made(rows, weights)
    witness = WeightedBfv()
    key = witness.load_public(PUBLIC.raw)
    assert witness.combine(key, uploads, weights, seeds) == sent
    others = some_weights(seed=2)
    assert not np.array_equal(others.table, weights.table)
    for changed in (
        witness.combine(key, uploads, others, seeds),
        witness.combine(key, uploads[::-1], weights, seeds),
        witness.combine(key, uploads, weights, [entropy(32) for _ in seeds]),
    ):
        assert all(a != b for a, b in zip(changed, sent, strict=True))


def solved(table: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """K equations for K models, in the reals."""
    return np.rint(np.linalg.solve(table.astype(float), rows.astype(float)))


def test_o1_the_authority_solves_k_equations_only_without_the_blind():
    clients, values = 6, 2000
    weights = some_weights(clients)
    models = np.random.default_rng(1).integers(0, 1 << 14, (clients, values)).astype(np.uint64)
    _, seeds, blinded = made(list(models), weights)
    seen = np.array([RING.decrypt(SECRET, blob)[:values] for blob in blinded])

    bare = np.array(
        [RING.subtract(row, RING.blind(s, values)) for row, s in zip(seen, seeds, strict=True)]
    )
    assert np.array_equal(solved(weights.table, bare), models)  # the control
    assert np.mean(solved(weights.table, seen) == models) < 0.01
    for row in seen:
        assert stats.kstest(row / T, "uniform").pvalue > 1e-12
    inverse = np.linalg.inv(weights.table.astype(float))
    guess = inverse @ np.where(seen > T // 2, seen.astype(float) - T, seen.astype(float))
    for true, found in zip(models, guess, strict=True):
        assert abs(stats.pearsonr(true.astype(float), found).statistic) < 0.15


def test_o1_another_receivers_seed_opens_nothing():
    rows, weights = [uniform() for _ in range(CLIENTS)], some_weights()
    _, seeds, blinded = made(rows, weights)
    opened = RING.decrypt(SECRET, blinded[0])
    wrong = RING.subtract(opened, RING.blind(seeds[1], DEGREE))
    assert np.mean(wrong == truth(rows, weights)[0]) < 0.01


def test_the_noise_tells_the_authority_how_alike_two_rows_of_weights_are():
    """A limit that is stated, not a promise: rows' noises correlate as their weights do."""
    table = np.full((CLIENTS, CLIENTS), 8, dtype=np.int64) + np.eye(CLIENTS, dtype=np.int64) * 88
    table[1] = [24, 56, 16, 16, 16]
    weights = Weights(table, 128)
    rows = [uniform(6 * DEGREE) for _ in range(CLIENTS)]
    _, _, blinded = made(rows, weights)
    noise = np.array(
        [np.concatenate([residues(words) for words in RING.parse(blob)]) for blob in blinded]
    )
    gram = weights.table @ weights.table.T + np.eye(CLIENTS) * FLOOD**2 / 3 / 15.1**2
    scale = np.sqrt(np.diag(gram))
    assert np.allclose(np.corrcoef(noise), gram / scale / scale[:, np.newaxis], atol=0.05)


def test_values_are_packed_with_head_room_for_the_total():
    packing, weights = Packing(15, TOTAL, RING.plain_bits), some_weights(total=TOTAL)
    assert packing.per == 2
    top = np.full(100, (1 << 15) - 1)  # the largest value everywhere
    values = [top] + [np.random.default_rng(k).integers(0, 1 << 15, 100) for k in range(4)]
    _, seeds, blinded = made([packing.pack(row) for row in values], weights)
    opened = RING.decrypt(SECRET, blinded[0])
    plain = RING.subtract(opened, RING.blind(seeds[0], opened.size))
    found = packing.unpack(plain[: packing.coefficients(100)], 100)
    assert np.array_equal(found, weights.table[0] @ np.array(values))


def test_some_rows_of_a_table_are_those_of_the_whole():
    rows, weights = [uniform(DEGREE + 1) for _ in range(CLIENTS)], some_weights()
    uploads, seeds, sent = made(rows, weights)
    for chosen in ([2], [3, 0], list(range(CLIENTS))):
        picked = [seeds[row] for row in chosen]
        found = RING.combine(PUBLIC, uploads, weights, picked, chosen)
        assert found == [sent[row] for row in chosen]
    for wrong in ([], [0, 0], [CLIENTS], [-1]):
        with pytest.raises(OutOfRange, match="twice, or is not there"):
            RING.combine(PUBLIC, uploads, weights, seeds[: len(wrong)], wrong)
    with pytest.raises(OutOfRange, match="one seed per row"):
        RING.combine(PUBLIC, uploads, weights, seeds, [0])


def test_what_does_not_belong_to_the_table_is_refused():
    weights = some_weights()
    uploads, seeds, _ = made([uniform() for _ in range(CLIENTS)], weights)
    good = (PUBLIC, uploads, weights, seeds)
    RING.combine(*good)  # the control
    for wrong in (uploads[:-1], [*uploads, uploads[0]]):
        with pytest.raises(OutOfRange):
            RING.combine(PUBLIC, wrong, weights, seeds)
    with pytest.raises(OutOfRange):
        RING.combine(PUBLIC, uploads, weights, seeds[1:])
    with pytest.raises(OutOfRange, match="under one blind"):
        RING.combine(PUBLIC, uploads, weights, [seeds[0], *seeds[:-1]])
    for seed in (b"", bytes(31), bytes(33)):
        with pytest.raises(InvalidKey):
            RING.combine(PUBLIC, uploads, weights, [seed, *seeds[1:]])
    with pytest.raises(InvalidKey):
        foreign, _ = scheme("bfv-sealapi").keygen()
        RING.combine(foreign, uploads, weights, seeds)
    longer = RING.encrypt(PUBLIC, uniform(DEGREE + 1))
    above = bytes([255]) * RING.ciphertext_bytes
    for wrong in (longer, uploads[0][:-1], b"", above, bytes(RING.ciphertext_bytes)):
        with pytest.raises(InvalidCiphertext):
            RING.combine(PUBLIC, [wrong, *uploads[1:]], weights, seeds)
        with pytest.raises(InvalidCiphertext):
            RING.combine(PUBLIC, [*uploads[1:], wrong], weights, seeds)


def test_a_row_too_heavy_to_open_exactly_is_refused():
    uploads, seeds, _ = made([uniform() for _ in range(CLIENTS)], some_weights())
    heavy = flatten(np.eye(CLIENTS), total=256)
    assert (heavy.table**2).sum(axis=1).max() > MAX_SQUARES
    with pytest.raises(OutOfRange, match="too heavy"):
        RING.combine(PUBLIC, uploads, heavy, seeds)
    RING.combine(PUBLIC, uploads, flatten(np.eye(CLIENTS)), seeds)  # the control: W = 128


# --- the authority's other view: noise (O1) -----------------------------------------------------


def unflooded(seed: bytes, ciphertexts: int) -> np.ndarray:
    return np.zeros(ciphertexts * DEGREE, dtype=np.uint64)


def errors(ring: WeightedBfv, prime: int, values: np.ndarray) -> np.ndarray:
    """What encoding adds to each value's noise, in [-1/2, 1/2)."""
    lifted = ring.lifted(values).astype(object)
    return ((lifted * T - values.astype(object) * prime) / T).astype(float)


@pytest.mark.parametrize("flooded", [True, False], ids=["flooded", "bare"])
@pytest.mark.parametrize("row", ["alone", "even"])
def test_o1_the_noise_of_rows_tells_no_value(flooded, row, monkeypatch):
    """A row on oneself is 128 times one noise, so its rest mod 128 tells that noise's fraction."""
    if not flooded:
        monkeypatch.setattr("crypto.homomorphic.weighted._flood", unflooded)
    count = 8
    table = np.full((count, count), 16, dtype=np.int64)
    factor = 16
    if row == "alone":
        table[0], factor = [128] + 7 * [0], 128
    weights = Weights(table, 128)
    packing = Packing(15, TOTAL, RING.plain_bits)
    values = [np.random.default_rng(k).integers(0, 1 << 15, 2 * DEGREE) for k in range(count)]
    rows = [packing.pack(value) for value in values]
    _, _, blinded = made(rows, weights)
    fraction = residues(RING.parse(blinded[0])[0]) / factor % 1.0
    parts = np.array([errors(RING, PRIME, part) for part in rows])
    told = (table[0] @ parts / factor) % 1.0
    off = np.abs((fraction - told + 0.5) % 1.0 - 0.5)
    if flooded:
        assert 0.2 < np.median(off) < 0.3  # as far as chance is from anything
        assert abs(stats.pearsonr(fraction, told).statistic) < 0.1
    else:  # the control: it stands there to within the rounding of the blind
        assert np.median(off) < 0.5 / factor


def test_o1_with_this_prime_encoding_errs_by_less_than_a_value_can_be_read_from():
    packing = Packing(15, TOTAL, RING.plain_bits)
    values = packing.pack(np.random.default_rng(1).integers(0, 1 << 15, 2 * DEGREE))
    assert np.abs(errors(RING, PRIME, values)).max() < 2**-7
    from crypto.homomorphic.bfv import PRIME as USUAL

    usual = errors(scheme("bfv-sealapi"), USUAL, values)  # the control: anything up to a half
    assert np.abs(usual).max() > 0.49
