"""Words of 60 bits without their four idle bits: two words are 15 bytes.

An array of words below 2^60 is one little-endian number to the base 2^60, written little-endian:

    byte   0 .. 6       7       8 .. 14
           first     4 | 4      second

Nothing is left over, so there is exactly one encoding of every even number of words, and every
whole number of 15 bytes is the encoding of some words. What words may be, a prime field or less, is
the caller's to check.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange

__all__ = ["PAIR_BYTES", "WORD_BITS", "pack60", "unpack60"]

WORD_BITS: Final = 60
"""Bits of a word."""

PAIR_BYTES: Final = 15
"""Bytes of two words."""

_MASK: Final = (1 << WORD_BITS) - 1
_SPARE: Final = 64 - WORD_BITS
# Two 64-bit reads of one pair: they overlap in the byte that both words share.
_OVERLAP: Final = PAIR_BYTES - 8
_PAIR: Final = np.dtype(
    {
        "names": ["low", "high"],
        "formats": ["<u8", "<u8"],
        "offsets": [0, _OVERLAP],
        "itemsize": PAIR_BYTES,
    }
)


def pack60(words: NDArray[np.uint64]) -> bytes:
    """Return an even number of words below 2^60, of any shape, as 7.5 bytes each, in C order.

    Raises OutOfRange for an odd number of words or a word of 2^60 or more.
    """
    if words.dtype != np.uint64 or words.size % 2:
        raise OutOfRange("An even number of unsigned 64-bit words is expected.")
    if words.size and int(words.max()) > _MASK:
        raise OutOfRange("A word does not fit into 60 bits.")
    first, second = words.reshape(-1, 2).T
    pairs = np.empty(first.size, dtype=_PAIR)
    pairs["low"] = first
    # In this order: the shared byte is written twice, and only the second time whole.
    pairs["high"] = first >> 8 * _OVERLAP | second << _SPARE
    return pairs.tobytes()


def unpack60(packed: bytes | memoryview) -> NDArray[np.uint64]:
    """Return the words of whole pairs, shape (n,), each below 2^60; the inverse of `pack60`.

    Raises OutOfRange for a length that is no multiple of 15 bytes.
    """
    if len(packed) % PAIR_BYTES:
        raise OutOfRange("Whole pairs of 60-bit words are expected: a multiple of 15 bytes.")
    pairs = np.frombuffer(packed, dtype=_PAIR)
    words = np.empty((pairs.size, 2), dtype=np.uint64)
    np.bitwise_and(pairs["low"], _MASK, out=words[:, 0])
    np.right_shift(pairs["high"], _SPARE, out=words[:, 1])
    return words.reshape(-1)
