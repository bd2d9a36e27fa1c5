"""CKKS on the integers of BFV: bit-equal, on the grid, and no floats for anybody (O2)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tenseal.sealapi as seal
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from crypto.errors import InvalidCiphertext
from crypto.homomorphic.bfv import CKKS26, DEGREE, MAX_TERMS, SealCkks
from crypto.homomorphic.he import scheme
from crypto.homomorphic.seal import Scratch
from crypto.samplers import Stream, entropy

HE = scheme(CKKS26.name)
PUBLIC, SECRET = HE.keygen()
T, PRIME, SCALE = HE.plain_modulus, HE.prime, 1 << 20
SIGMA = math.sqrt((1 + 2 * DEGREE / 3) / 12)


def uniform(seed: int, count: int = DEGREE) -> np.ndarray:
    return Stream(seed.to_bytes(32, "big")).uniform(T, count)


def summed(rows):
    total = HE.accumulator(PUBLIC)
    for row in rows:
        total.add(HE.encrypt(PUBLIC, row))
    return total


def integers_inside(blob: bytes) -> np.ndarray:
    """What the authority's own process sees before it reduces mod t."""
    phases = HE._phases(SECRET.use(HE.name), HE.parse(blob)).reshape(-1)
    return (phases + SCALE // 2) // SCALE


@settings(max_examples=20)
@given(data=st.data())
def test_o2_ckks_and_bfv_open_the_same_integers(data):
    bits = data.draw(st.integers(1, 16))
    clients = data.draw(st.integers(1, 6))
    numbers = st.lists(st.integers(0, 2**bits - 1), min_size=8, max_size=8)
    rows = [np.array(data.draw(numbers), dtype=np.uint64) for _ in range(clients)]
    bfv = scheme("bfv-sealapi")
    public, secret = bfv.keygen()
    total = bfv.accumulator(public)
    for row in rows:
        total.add(bfv.encrypt(public, row))
    assert np.array_equal(
        HE.decrypt(SECRET, summed(rows).to_bytes()), bfv.decrypt(secret, total.to_bytes())
    )


@pytest.mark.parametrize("extreme", [T // 2 - 1, T // 2, T - 1])
def test_o2_the_largest_sums_do_not_pass_q(extreme):
    row = np.full(DEGREE, extreme, dtype=np.uint64)
    total = summed([row] * MAX_TERMS)
    for _ in range(100):  # blind, corrections: more than will ever be added
        total.add_plain(row)
    assert set(HE.decrypt(SECRET, total.to_bytes())) == {(MAX_TERMS + 100) * extreme % T}
    nearest = extreme if extreme < T // 2 else extreme - T
    assert set(integers_inside(total.to_bytes())) == {(MAX_TERMS + 100) * nearest}


@pytest.mark.parametrize("terms", [1, MAX_TERMS])
def test_o2_the_noise_is_what_the_formula_says(terms):
    blob = summed([uniform(seed) for seed in range(terms)]).to_bytes()
    phases = HE._phases(SECRET.use(HE.name), HE.parse(blob)).reshape(-1)
    noise = phases - integers_inside(blob) * SCALE
    assert 0.93 < noise.std() / (SIGMA * math.sqrt(terms)) < 1.07
    assert np.abs(noise).max() < SCALE // 4 // 100  # hundreds of standard deviations of room
    assert terms * (DEGREE - 1) / 2 < SCALE // 4  # and no ternary key of weight 4094 can pass it


def nudged(blob: bytes, by: int) -> bytes:
    words = np.frombuffer(blob, dtype="<u8").copy()
    words[7] = (int(words[7]) + by) % PRIME
    return words.tobytes()


@pytest.mark.parametrize("sign", [1, -1])
def test_o2_a_residue_above_a_quarter_step_is_refused(sign):
    row = uniform(3)
    blob, margin = HE.encrypt(PUBLIC, row), 200  # thirteen standard deviations
    inside = nudged(blob, sign * (SCALE // 4 - margin))
    assert np.array_equal(HE.decrypt(SECRET, inside), row)  # the control
    for beyond in (SCALE // 4 + margin, SCALE // 2, 3 * SCALE // 4 - margin):
        with pytest.raises(InvalidCiphertext):
            HE.decrypt(SECRET, nudged(blob, sign * beyond))


def test_o2_only_integers_leave():
    opened = HE.decrypt(SECRET, summed([uniform(1), uniform(2)]).to_bytes())
    assert opened.dtype == np.uint64
    assert int(opened.max()) < T


class Leaky(SealCkks):
    """The broken variant: decoded numbers as floats, as libraries for CKKS return them."""

    def decrypt(self, key, blob):
        return self._phases(key.use(self.name), self.parse(blob)).reshape(-1) / SCALE


def transformed(words: np.ndarray, *, back: bool = False) -> np.ndarray:
    """NTT of two polynomials mod q, shape (2, N), with nothing but public parameters."""
    ciphertext, heads = seal.Ciphertext(HE._context), HE._heads
    source, target = (
        (heads.transformed, heads.ciphertext) if back else (heads.ciphertext, heads.transformed)
    )
    with Scratch() as scratch:
        ciphertext.load(HE._context, scratch.put(source, words.astype("<u8")))
        (
            HE._evaluator.transform_from_ntt_inplace
            if back
            else HE._evaluator.transform_to_ntt_inplace
        )(ciphertext)
        body = heads.cut(scratch.dump(ciphertext), target)
    return np.frombuffer(body, dtype="<u8").reshape(2, DEGREE)


def stolen_key(blob: bytes, returned: np.ndarray) -> list[int]:
    """The key's NTT points, if `returned` were the exact opening: s = (m - c0) / c1."""
    phase = np.array([round(float(value) * SCALE) % PRIME for value in returned], dtype=np.uint64)
    c0, c1 = transformed(np.frombuffer(blob, dtype="<u8")).astype(object)
    m = transformed(np.stack([phase, phase]))[0].astype(object)
    return [
        (int(a) - int(b)) * pow(int(c), -1, PRIME) % PRIME
        for a, b, c in zip(m, c0, c1, strict=True)
    ]


def opened_with(points: list[int], blob: bytes) -> np.ndarray:
    c0, c1 = transformed(np.frombuffer(blob, dtype="<u8")).astype(object)
    phase = np.array(
        [(a + b * s) % PRIME for a, b, s in zip(c0, c1, points, strict=True)], dtype=np.uint64
    )
    plain = transformed(np.stack([phase, phase]), back=True)[0].astype(object)
    plain = np.where(plain > PRIME // 2, plain - PRIME, plain)
    return ((plain + SCALE // 2) // SCALE % T).astype(np.uint64)


def test_o2_floats_give_the_secret_key_away_and_integers_do_not():
    total = summed([uniform(seed) for seed in range(10)]).to_bytes()
    victim = uniform(99)
    upload = HE.encrypt(PUBLIC, victim)

    key = stolen_key(total, Leaky().decrypt(SECRET, total))  # the control
    coefficients = transformed(np.array([key, key], dtype=np.uint64), back=True)[0]
    assert set(coefficients.tolist()) == {0, 1, PRIME - 1}
    assert np.array_equal(opened_with(key, upload), victim)

    # The most that rounding leaves: even the integers with their carries, which nobody returns.
    guess = stolen_key(total, integers_inside(total))
    assert np.mean([a == b for a, b in zip(guess, key, strict=True)]) < 0.001
    assert np.mean(opened_with(guess, upload) == victim) < 0.001
    guess = stolen_key(total, HE.decrypt(SECRET, total))
    assert np.mean([a == b for a, b in zip(guess, key, strict=True)]) < 0.001


def authority_sees(vectors, *, masked: bool) -> np.ndarray:
    """The authority's integers for one round, blinded; masked: pair and self-masks inside."""
    stream = Stream(entropy(32))
    t = np.uint64(T)
    rows = [row.copy() for row in vectors]
    if masked:
        for i in range(len(rows)):
            rows[i] = (rows[i] + stream.uniform(T, rows[i].size)) % t
    total = summed(rows)
    total.add_plain(stream.uniform(T, total.coefficients))
    return integers_inside(total.to_bytes())


def test_o1_carries_tell_nothing_only_with_masks_inside():
    low = [np.zeros(4 * DEGREE, dtype=np.uint64)] * 3
    high = [np.full(4 * DEGREE, T // 3, dtype=np.uint64)] * 3
    bare = stats.ks_2samp(*(authority_sees(rows, masked=False) for rows in (low, high)))
    assert bare.pvalue < 1e-9  # the control: a blind mod t does not hide a sum over the integers
    masked = stats.ks_2samp(*(authority_sees(rows, masked=True) for rows in (low, high)))
    assert masked.pvalue > 1e-12
