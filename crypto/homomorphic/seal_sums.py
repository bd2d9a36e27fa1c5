"""Sums of ciphertexts as words mod q, for the schemes of `crypto.homomorphic.bfv_sealapi`."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange

__all__ = ["WordRing", "WordSum", "reduce_once"]


class WordRing(Protocol):
    """What a sum needs of its scheme."""

    prime: int
    degree: int
    max_terms: int

    def parse(self, blob: bytes, expected: int = 0) -> NDArray[np.uint64]:
        """Return the checked words of an upload, shape (ciphertexts, 2N)."""

    def plain_rows(self, coefficients: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return checked plaintext values, shape (ciphertexts, N)."""

    def shifted(self, words: NDArray[np.uint64], rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return ciphertext words with plaintext added."""

    def to_wire(self, words: NDArray[np.uint64]) -> bytes:
        """Return words in wire form."""


def reduce_once(words: NDArray[np.uint64], prime: int) -> None:
    """Subtract `prime` in place wherever a word is at or above it; all words are below 2 prime."""
    # Below q the subtraction wraps to a huge number, so the minimum is the residue.
    np.minimum(words, words - np.uint64(prime), out=words)


class WordSum:
    """Sums words mod q in numpy: the same result as SEAL's addition, and no parser is involved."""

    def __init__(self, ring: WordRing) -> None:
        """Start at nothing; `ring` reads, shifts and writes ciphertexts."""
        self._ring = ring
        self._sum: NDArray[np.uint64] | None = None
        self._count = 0

    @property
    def count(self) -> int:
        """How many ciphertexts were added."""
        return self._count

    @property
    def coefficients(self) -> int:
        """How many plaintext values the sum holds."""
        return 0 if self._sum is None else len(self._sum) * self._ring.degree

    def add(self, blob: bytes) -> None:
        """Add an upload; raises InvalidCiphertext, or OutOfRange for one too many."""
        if self._count >= self._ring.max_terms:
            limit = self._ring.max_terms
            raise OutOfRange(f"A sum of more than {limit} ciphertexts may not be exact.")
        expected = 0 if self._sum is None else len(self._sum)
        words = self._ring.parse(blob, expected)
        if self._sum is None:
            self._sum = words.copy()
        else:
            for row, addend in zip(self._sum, words, strict=True):  # each fits into the cache
                np.add(row, addend, out=row)  # both below q < 2^60: no wrap in 64 bits
                reduce_once(row, self._ring.prime)
        self._count += 1

    def add_plain(self, coefficients: NDArray[np.uint64]) -> None:
        """Add plaintext mod t, one value per coefficient; raises OutOfRange."""
        if self._sum is None or np.size(coefficients) != self.coefficients:
            raise OutOfRange("Add plaintext with exactly one value per coefficient of the sum.")
        self._sum = self._ring.shifted(self._sum, self._ring.plain_rows(coefficients))

    def to_bytes(self) -> bytes:
        """Return the sum in wire form; raises OutOfRange if nothing was added."""
        if self._sum is None:
            raise OutOfRange("Nothing was added to this sum.")
        return b"".join(self._ring.to_wire(row) for row in self._sum)
