"""Public keys that nobody chose: what a chosen one would give away, and that none is taken."""

from __future__ import annotations

import numpy as np
import pytest
import tenseal.sealapi as seal
from scipy import stats

from crypto.errors import InvalidKey
from crypto.homomorphic.bfv import DEGREE, SEED_BYTES, binomial
from crypto.homomorphic.seal import Scratch
from crypto.homomorphic.similarity import Similarity, polynomials, unit
from crypto.samplers import Stream, entropy
from tests.crypto.cosines import KEY, PUBLIC, RING, Q, coefficients, cosine, points, words_of

START = len(RING._key_head) + SEED_BYTES
RNG = np.random.default_rng(7)


def at_the_roots(small: np.ndarray) -> np.ndarray:
    """Values of a polynomial with small coefficients, as Python's integers."""
    words = (small.astype(object) % Q).astype(np.uint64)
    return points(np.stack([words, words]))[0]


def slots(whole: np.ndarray) -> np.ndarray:
    """Values of centred coefficients at half of the complex roots."""
    turn = np.exp(1j * np.pi * np.arange(DEGREE) / DEGREE)
    return (np.fft.ifft(whole.astype(float) * turn) * DEGREE)[: DEGREE // 2]


def laid(vector: np.ndarray) -> np.ndarray:
    return slots(polynomials(vector, DEGREE, 28)[0]).real


class Chosen(Similarity):
    """A broken variant: the second half of a key is what its maker says."""

    second = np.zeros(DEGREE, dtype=object)

    def _points(self, raw):
        first = np.frombuffer(raw, dtype="<u8", offset=START)
        return np.concatenate([first, self.second.astype("<u8")])


def with_a_trapdoor():
    """A ring and a key with a = g/f, and f and s at the roots."""
    while True:
        f, g, s = (at_the_roots(RNG.integers(-1, 2, DEGREE)) for _ in range(3))
        if all(f):
            break
    a = g * np.array([pow(int(value), -1, Q) for value in f], dtype=object) % Q
    b = -(a * s + at_the_roots(np.rint(RNG.normal(0, 3.2, DEGREE)).astype(int))) % Q
    ring = Chosen()
    ring.second = a
    raw = RING._key_head + bytes(SEED_BYTES) + b.astype("<u8").tobytes()
    return ring, ring.load_public(raw), f, s


def read_by_the_authority(ring, key, f, s, vectors) -> np.ndarray:
    """What it makes of masked products, who knows the first client's vector: the second one's.

    c1 + 2 s c2 of a product is M_i c1_j + M_j c1_i and small; no mask covers it. Times f it is in
    whole numbers, because f c1_i = g u_i + f e_i =: X_i is small.
    """
    ready, seen = [ring.operand(ring.upload(key, row)) for row in vectors], {}
    for i, j in ((0, 0), (0, 1), (1, 1)):
        c1, c2 = points(words_of(ring.product(key, ready[i], ready[j], entropy(32)))[1:])
        seen[i, j] = slots(coefficients(f * (c1 + 2 * s * c2) % Q))
    own = laid(unit(vectors[0]))
    mine = seen[0, 0] / (2 * own)
    root = np.sqrt(seen[0, 1] ** 2 - 2 * mine * own * seen[1, 1] + 0j)
    both = np.stack([seen[0, 1] + root, seen[0, 1] - root]) / (2 * mine)
    guess = np.where(np.abs(both[0].imag) < np.abs(both[1].imag), both[0].real, both[1].real)
    columns = np.stack([laid(row) for row in np.eye(vectors.shape[1])], axis=1)
    used = np.abs(own) > np.quantile(np.abs(own), 0.2)
    for _ in range(4):  # each time without the slots where the other root was taken
        found = np.linalg.lstsq(columns[used], guess[used], rcond=None)[0]
        left = np.abs(columns @ found - guess)
        used = left < 3 * np.median(left)
    return found


def test_o3_control_a_key_with_a_trapdoor_shows_its_authority_a_whole_vector():
    vectors = RNG.standard_normal((2, 64))
    found = read_by_the_authority(*with_a_trapdoor(), vectors)
    assert np.abs(found - unit(vectors[1])).max() < 2.0**-14


def test_o3_without_one_the_same_gives_nothing():
    """The authority does not know a small f for this a; 1 is as good as any."""
    vectors = RNG.standard_normal((2, 64))
    found = read_by_the_authority(RING, PUBLIC, np.ones(DEGREE, dtype=object), KEY, vectors)
    assert abs(cosine(found, vectors[1])) < 0.6


def test_o3_a_key_whose_second_half_somebody_chose_is_not_taken():
    """Its wire form has no place for one."""
    ring, key, _, _ = with_a_trapdoor()
    taken = RING.load_public(key.raw)
    assert not np.array_equal(RING._points(taken.raw)[DEGREE:], ring._points(key.raw)[DEGREE:])
    both = RING._key_head + ring._points(key.raw).tobytes()  # as SEAL writes it
    for raw in (both, key.raw + ring.second.astype("<u8").tobytes()):
        with pytest.raises(InvalidKey):
            RING.load_public(raw)
    ready = [RING.operand(RING.upload(taken, row)) for row in RNG.standard_normal((2, 5))]
    assert len(RING.product(taken, *ready, entropy(32)))  # it opens as nonsense, and shows nothing


def test_a_key_is_an_encryption_of_zero_with_the_noise_it_should_have():
    for _ in range(3):
        public, secret = RING.keygen()
        body, key, plaintext = RING._points(public.raw), seal.Ciphertext(), seal.Plaintext()
        with Scratch() as scratch:
            key.load(RING._context, scratch.put(RING._heads.transformed, body))
            secret.use(RING.name).decryptor.decrypt(key, plaintext)
            opened = scratch.dump(plaintext)[RING._heads.plaintext_offset :]
        noise = coefficients(np.frombuffer(opened, dtype="<u8", count=DEGREE).astype(object))
        noise = noise.astype(float)
        assert np.abs(noise).max() <= 21 and abs(noise.mean()) < 0.4
        assert abs(noise.std() - 10.5**0.5) < 0.3
        assert stats.kstest((body / Q).astype(float), "uniform").pvalue > 1e-12


def test_seeds_and_secrets_are_fresh_and_the_same_seed_gives_the_same_half():
    keys = [RING.keygen()[0] for _ in range(3)]
    assert len({key.raw[START - SEED_BYTES : START] for key in keys}) == 3
    assert len({key.raw[START:] for key in keys}) == 3
    again = Similarity().load_public(keys[0].raw)
    assert np.array_equal(RING._points(again.raw), RING._points(keys[0].raw))
    assert again.key_id == keys[0].key_id
    halves = [RING._points(key.raw)[DEGREE:] for key in keys]
    assert not np.array_equal(halves[0], halves[1]) and int(max(map(np.max, halves))) < Q


def test_a_word_of_a_key_that_is_not_below_q_is_refused():
    raw = bytearray(PUBLIC.raw)
    raw[START : START + 8] = Q.to_bytes(8, "little")
    with pytest.raises(InvalidKey):
        RING.load_public(bytes(raw))
    raw[START : START + 8] = (Q - 1).to_bytes(8, "little")
    assert RING.load_public(bytes(raw))


def test_binomial_noise_has_the_spread_of_seals_own():
    drawn = binomial(Stream(bytes(32)), 50_000, Q).astype(object)
    small = np.where(drawn > Q // 2, drawn - Q, drawn).astype(float)
    assert np.abs(small).max() <= 21
    assert abs(small.mean()) < 0.1 and abs(small.std() - 10.5**0.5) < 0.1
