"""SEAL 4's files and ciphertexts as words: serialisation, packing to 60 bits, sums mod q."""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol

import numpy as np
import zstandard
from numpy.typing import NDArray

from crypto.errors import OutOfRange, SelfTestFailed

# --- Words of 60 bits without their four idle bits: two words are 15 bytes ---
#
# An array of words below 2^60 is one little-endian number to the base 2^60, written little-endian:
#
#     byte   0 .. 6       7       8 .. 14
#            first     4 | 4      second
#
# Nothing is left over, so there is exactly one encoding of every even number of words, and every
# whole number of 15 bytes is the encoding of some words. What words may be, a prime field or less,
# is the caller's to check.

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


# --- SEAL 4's serialisation, spoken only with the library beside us and never with a peer ---
#
# The bindings in the TenSEAL wheel offer `save(path)` and `load(context, path)` and nothing else,
# so each conversation gets a private file: in memory on Linux, mode 0600 elsewhere. What SEAL saves
# it compresses; what we hand it is not.
#
# SEAL believes what a header says. One that claims a compressed array of 2^20 bytes or more inside
# a compressed object ends the process (std::terminate), before anything can be caught. So every
# header that SEAL is given is one of `Heads`, built here, and what stands behind it is exactly as
# many words as it says: `Scratch.put` checks that. Nothing else calls a `load` of SEAL's (a test
# reads the sources), and what is decompressed here was written by our own SEAL the moment before.
# No other module imports SEAL's bindings.
#
#     header      magic, header size, major, minor, compression, reserved, total size
#     ciphertext  parms_id, is_ntt, size, N, primes, scale, correction factor, then an array
#     plaintext   parms_id, coefficients, scale, then an array
#     array       header, number of words, words (little-endian u64)

try:
    import tenseal.sealapi
except ImportError:
    raise SelfTestFailed(
        "SEAL's own bindings (tenseal.sealapi) are not there, so nothing is encrypted."
    ) from None

seal = tenseal.sealapi

_HEADER: Final = struct.Struct("<HBBBBHQ")
_CIPHERTEXT: Final = struct.Struct("<4QB3QdQ")
_PLAINTEXT: Final = struct.Struct("<4QQd")
_COUNT: Final = struct.Struct("<Q")
_MAGIC: Final = 0xA15E
_NONE, _ZLIB, _ZSTD = 0, 1, 2
_MODE_OFFSET: Final = 5


class Scratch:
    """A private file for one conversation with SEAL; its content is overwritten at the end.

    Opened per operation, so neither threads nor forked processes can share one.
    """

    __slots__ = ("_fd", "_unlink", "path")

    def __enter__(self) -> Scratch:
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create("bfv", os.MFD_CLOEXEC)
            self.path, self._unlink = f"/proc/self/fd/{self._fd}", False
        else:
            # Without in-memory files a plaintext polynomial touches a disk for a moment.
            self._fd, self.path = tempfile.mkstemp(prefix="bfv")
            self._unlink = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.pwrite(self._fd, bytes(os.fstat(self._fd).st_size), 0)
        os.close(self._fd)
        if self._unlink:
            os.unlink(self.path)

    def put(self, head: bytes, words: Any) -> str:
        """Replace the file's content by `head` and `words`; return its path for SEAL's load.

        Args:
            head: one of `Heads`, nothing else.
            words: a buffer of exactly as many 64-bit words as the head announces, unchecked.

        Raises:
            SelfTestFailed: another number of words.
        """
        (announced,) = _COUNT.unpack(head[-_COUNT.size :])
        if memoryview(words).nbytes != 8 * announced:
            raise SelfTestFailed("SEAL was to read another number of words than its head says.")
        os.ftruncate(self._fd, 0)
        os.pwritev(self._fd, [head, words], 0)
        return self.path

    def dump(self, thing: Any) -> bytes:
        """Return what SEAL saves of `thing`, without its outer header and compression."""
        thing.save(self.path)
        saved = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        mode, body = saved[_MODE_OFFSET], saved[_HEADER.size :]
        if mode == _ZSTD:
            return zstandard.ZstdDecompressor().decompressobj().decompress(body)
        return zlib.decompress(body) if mode == _ZLIB else body


@dataclass(frozen=True)
class Heads:
    """The bytes that go before our words, for ciphertexts of degree N.

    `ciphertext` (coefficients, one prime), `product` (the same with three parts), `transformed`
    (two parts in NTT form), `public` and `secret` (NTT form, all primes of the key) and `plaintext`
    are complete heads for SEAL's load; `cut` removes the same heads from what SEAL saved.
    """

    ciphertext: bytes
    product: bytes
    transformed: bytes
    public: bytes
    secret: bytes
    plaintext: bytes
    degree: int

    @classmethod
    def learn(cls, context: Any, degree: int, key_primes: int) -> Heads:
        """Build the heads in the dialect in which SEAL saves an empty plaintext.

        `context` is a SEALContext of `degree` whose keys have `key_primes` primes and whose
        ciphertexts have one. Raises SelfTestFailed.
        """
        empty = seal.Plaintext()
        with Scratch() as scratch:
            empty.save(scratch.path)
            with open(scratch.path, "rb") as file:
                magic, size, major, minor, *_ = _HEADER.unpack(file.read(_HEADER.size))
        if (magic, size) != (_MAGIC, _HEADER.size):
            raise SelfTestFailed

        def framed(fields: bytes, words: int) -> bytes:
            inner = _HEADER.size + _COUNT.size + 8 * words
            total = _HEADER.size + len(fields) + inner
            outer, array = (
                _HEADER.pack(_MAGIC, _HEADER.size, major, minor, _NONE, 0, length)
                for length in (total, inner)
            )
            return outer + fields + array + _COUNT.pack(words)

        def parts(parms_id: Sequence[int], ntt: int, primes: int, count: int = 2) -> bytes:
            fields = _CIPHERTEXT.pack(*parms_id, ntt, count, degree, primes, 1.0, 1)
            return framed(fields, count * degree * primes)

        def polynomial(parms_id: Sequence[int], words: int) -> bytes:
            return framed(_PLAINTEXT.pack(*parms_id, words, 1.0), words)

        data, keys = context.first_parms_id(), context.key_parms_id()
        return cls(
            ciphertext=parts(data, 0, 1),
            product=parts(data, 0, 1, 3),
            transformed=parts(data, 1, 1),
            public=parts(keys, 1, key_primes),
            secret=polynomial(keys, degree * key_primes),
            plaintext=polynomial((0, 0, 0, 0), degree),
            degree=degree,
        )

    def cut(self, body: bytes, head: bytes) -> bytes:
        """Return the words of a saved object; any head but the known one means another SEAL."""
        known = head[_HEADER.size :]
        (words,) = _COUNT.unpack(known[-_COUNT.size :])
        if body[: len(known)] != known or len(body) != len(known) + 8 * words:
            raise SelfTestFailed
        return body[len(known) :]

    @property
    def plaintext_offset(self) -> int:
        """Where the words of a saved plaintext begin, whatever its parameters."""
        return len(self.plaintext) - _HEADER.size


# --- Sums of ciphertexts as words mod q, for the schemes of `crypto.homomorphic.bfv` ---


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
