"""A check that adds up with a sum: whoever holds its key sees whether the sum was changed.

Each party adds a few words to its vector of integers; the words of all parties add up to the words
of the total, so one who holds the key needs nothing but the total. It is one-time authentication
after Wegman and Carter (JCSS 22, 1981): a secret linear hash of the vector plus a secret pad. The
hash is a Toeplitz matrix (Krawczyk, CRYPTO 1994) over the integers mod M = 2^k, as sums under masks
and BFV are taken mod a power of two.

With rows r, word w of a vector x is Σ_j r[w + j] x[j] + pad[w] mod M. Let d be a change of the
total, all of whose entries are below 2^b in magnitude, and d[i] its first entry that is not zero:
at most 2^(b-1) divides it. Seen from the last word to the first, each word holds one number that
those before it do not, r[w + i], so a change goes unnoticed in a word with probability at most
2^-(k - b + 1), whatever happened to the others. As many words are taken as make that 2^-64.

Who sees the words of a total without the key learns nothing from them: the pads are uniform.
Whoever holds the key can change a total unnoticed. A key and label serve one vector of each party.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hmac import compare_digest
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crypto.errors import InvalidSum, OutOfRange
from crypto.masks import Words, container
from crypto.samplers import Mute, Stream, derive

__all__ = ["SumCheck", "check_words"]

_SECURITY: Final = 64


def check_words(modulus: int, bits: int) -> int:
    """Return how many words a check has.

    Args:
        modulus: M, a power of two.
        bits: b; a total, and any change of it, is below 2^b in magnitude.

    Raises:
        OutOfRange: M is no power of two up to 2^64, or no larger than the totals.
    """
    k = modulus.bit_length() - 1
    if modulus != 1 << k or not 1 <= bits <= k <= 64:
        raise OutOfRange("A check needs totals of at least one bit, mod a power of two above them.")
    return -(-_SECURITY // (k - bits + 1))


class SumCheck(Mute):
    """The check of one sum.

    Args:
        key: 32 bytes that all parties of the sum hold and nobody else.
        label: names this one sum; never used for another.
        length: how many integers are checked.
        modulus: M, a power of two.
        bits: see `check_words`, whose errors it raises.
    """

    __slots__ = ("_key", "_label", "_length", "_modulus", "size")

    def __init__(self, key: bytes, label: str, length: int, modulus: int, bits: int) -> None:
        self._key, self._label, self._length, self._modulus = key, label, length, modulus
        self.size = check_words(modulus, bits)

    def of(self, values: NDArray[np.int64], name: str) -> Words:
        """Return the words of one party's vector.

        Args:
            values: shape (length,).
            name: of the party.

        Returns:
            Shape (size,), mod M, to be summed like the vector.
        """
        return self._reduced(self._hash(values) + self._pad(name))

    def verify(self, total: NDArray[np.int64], words: Words, names: Sequence[str]) -> None:
        """See that a total is the sum of what just these parties added up.

        Args:
            total: shape (length,); the caller has checked that each entry is in range.
            words: shape (size,), the sum of the parties' words mod M.
            names: of the parties.

        Raises:
            InvalidSum: it is not.
        """
        expected = self._hash(total)
        for name in names:
            expected = expected + self._pad(name)
        found = np.asarray(words)
        same = found.shape == (self.size,) and found.dtype == expected.dtype
        if not same or not compare_digest(self._reduced(expected).tobytes(), found.tobytes()):
            raise InvalidSum("A total is not what these parties' vectors add up to.")

    def _hash(self, values: NDArray[np.int64]) -> Words:
        if values.shape != (self._length,) or values.dtype != np.int64:
            raise OutOfRange("A vector of 64-bit integers of the checked length is expected.")
        seed = derive(self._key, "sum-check", "rows", self._label)
        rows = _rows(seed, self._length + self.size - 1, self._modulus)
        # Two's complement: equal mod M.
        given = values.view(np.uint64).astype(rows.dtype, copy=False)
        places = range(self.size)
        found: Words = np.array(
            [np.einsum("i,i", rows[w : w + given.size], given) for w in places], given.dtype
        )
        return found

    def _pad(self, name: str) -> Words:
        stream = Stream(derive(self._key, "sum-check", "pad", self._label, name))
        return _drawn(stream, self.size, self._modulus)

    def _reduced(self, words: Words) -> Words:
        kind: Any = words.dtype.type
        reduced: Words = words & kind(self._modulus - 1)
        return reduced


@lru_cache(maxsize=1)  # parties of one process that check one sum; a party signs and then verifies
def _rows(seed: bytes, count: int, modulus: int) -> Words:
    rows = _drawn(Stream(seed), count, modulus)
    rows.flags.writeable = False
    return rows


def _drawn(stream: Stream, count: int, modulus: int) -> Words:
    """Return uniform words of the container; bits above the modulus change no word mod M."""
    drawn: Words = np.empty(count, dtype=container(modulus))
    stream.fill(drawn.view(np.uint8))
    return drawn
