"""One key pair of `crypto.homomorphic.similarity`, what its authority sees, and broken variants."""

from __future__ import annotations

import numpy as np
import tenseal.sealapi as seal

from crypto.homomorphic.bfv import DEGREE
from crypto.homomorphic.seal import Scratch, pack60, reduce_once, unpack60
from crypto.homomorphic.similarity import Similarity, similarity, unit

RING = similarity()
PUBLIC, SECRET = RING.keygen()
Q = RING.prime


def vectors(clients: int, d: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    base = rng.standard_normal(d)
    return np.array([rng.uniform(0.2, 1) * base + rng.standard_normal(d) for _ in range(clients)])


def operands(rows) -> list:
    return [RING.operand(RING.upload(PUBLIC, row)) for row in rows]


def cosine(first, second) -> float:
    return float(unit(first) @ unit(second))


def words_of(product: bytes) -> np.ndarray:
    return unpack60(product).reshape(3, DEGREE)


def points(words: np.ndarray, *, back: bool = False) -> np.ndarray:
    """NTT of two polynomials mod q, shape (2, N), as Python's integers."""
    heads, ciphertext = RING._heads, seal.Ciphertext(RING._context)
    source, target = heads.ciphertext, heads.transformed
    move = RING._evaluator.transform_to_ntt_inplace
    if back:
        source, target = target, source
        move = RING._evaluator.transform_from_ntt_inplace
    with Scratch() as scratch:
        body = np.ascontiguousarray(words.astype(np.uint64))
        ciphertext.load(RING._context, scratch.put(source, body))
        move(ciphertext)
        body = heads.cut(scratch.dump(ciphertext), target)
    return np.frombuffer(body, dtype="<u8").reshape(2, DEGREE).astype(object)


def key_points() -> np.ndarray:
    """The secret key at the roots: what (0, 1) opens as."""
    one = np.zeros((2, DEGREE), dtype=np.uint64)
    one[1, 0] = 1
    plaintext = seal.Plaintext()
    with Scratch() as scratch:
        SECRET.use(RING.name).decryptor.decrypt(RING._transformed(one, scratch), plaintext)
        body = scratch.dump(plaintext)[RING._heads.plaintext_offset :]
    return np.frombuffer(body, dtype="<u8", count=DEGREE).astype(object)


KEY = key_points()


def coefficients(values: np.ndarray) -> np.ndarray:
    """Values at the roots as centred coefficients."""
    found = points(np.stack([values, values]), back=True)[0]
    return np.where(found > Q // 2, found - Q, found)


def opened(words: np.ndarray) -> np.ndarray:
    """All that the authority's key gives: every coefficient of c0 + c1 s + c2 s^2, centred."""
    (c0, c1), (_, c2) = points(words[:2]), points(words[1:])
    return coefficients((c0 + c1 * KEY + c2 * KEY * KEY) % Q)


class Unmasked(Similarity):
    """A broken variant: the encryption of zero alone."""

    def _mask(self, seed):
        return np.zeros((3, DEGREE), dtype=np.uint64)


class SlotMask(Similarity):
    """A broken variant: real numbers over the slots with sum zero, as first proposed."""

    def _mask(self, seed):
        half = np.random.default_rng(list(seed)).integers(-(2**57), 2**57, DEGREE // 2 - 1)
        mask = np.zeros((3, DEGREE), dtype=np.int64)
        mask[0, 1 : DEGREE // 2], mask[0, DEGREE // 2 + 1 :] = half, -half[::-1]
        return (mask % Q).astype(np.uint64)


class NoZero(Similarity):
    """A broken variant: the mask without a fresh encryption of zero."""

    def product(self, key, left, right, seed):
        total = seal.Ciphertext(self._context)
        ((first, second),) = left.pairs(right)
        self._evaluator.multiply(first, second, total)
        self._evaluator.transform_from_ntt_inplace(total)
        with Scratch() as scratch:
            body = self._heads.cut(scratch.dump(total), self._heads.product)
        words = np.frombuffer(body, dtype="<u8").reshape(3, DEGREE) + self._mask(seed)
        reduce_once(words, Q)
        return pack60(words)


UNMASKED, SLOT_MASK, NO_ZERO = Unmasked(), SlotMask(), NoZero()
