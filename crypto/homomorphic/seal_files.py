"""SEAL 4's serialisation, spoken only with the library beside us and never with a peer.

The bindings in the TenSEAL wheel offer `save(path)` and `load(context, path)` and nothing else, so
each conversation gets a private file: in memory on Linux, mode 0600 elsewhere. What SEAL saves it
compresses; what we hand it is not.

SEAL believes what a header says. One that claims a compressed array of 2^20 bytes or more inside a
compressed object ends the process (std::terminate), before anything can be caught. So every header
that SEAL is given is one of `Heads`, built here, and what stands behind it is exactly as many words
as it says: `Scratch.put` checks that. Nothing else calls a `load` of SEAL's (a test reads the
sources), and what is decompressed here was written by our own SEAL the moment before. No other
module imports SEAL's bindings.

    header      magic, header size, major, minor, compression, reserved, total size
    ciphertext  parms_id, is_ntt, size, N, primes, scale, correction factor, then an array
    plaintext   parms_id, coefficients, scale, then an array
    array       header, number of words, words (little-endian u64)
"""

import os
import struct
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import zstandard

from crypto.errors import SelfTestFailed

try:
    import tenseal.sealapi as seal
except ImportError:
    raise SelfTestFailed(
        "SEAL's own bindings (tenseal.sealapi) are not there, so nothing is encrypted."
    ) from None

__all__ = ["Heads", "Scratch", "seal"]

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

    def __enter__(self) -> "Scratch":
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
    def learn(cls, context: Any, degree: int, key_primes: int) -> "Heads":
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
