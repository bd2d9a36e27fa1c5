"""What every secret-bearing object inherits: a mute face and no way out of the process."""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from crypto.errors import InvalidKey, OutOfRange


class Mute:
    """Base of objects that hold secrets: says only its type, refuses to be pickled or copied.

    Python cannot promise that memory is wiped; what it can promise is that a secret is not
    written down by accident in a log, a traceback, a checkpoint or another process.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        # `copy` comes this way too.
        raise TypeError(
            f"{type(self).__name__} holds a secret and refuses to be pickled or copied; "
            "hand on its public part instead."
        )


# --- Where secret randomness comes from: the operating system, and streams derived from it (O15)
# ---
#
# `entropy` is the only source. `derive` separates one secret into many keys (HKDF-SHA256, RFC
# 5869). `Stream` turns a key into a long, reproducible sequence (AES-256 in counter mode, NIST SP
# 800-38A), which is how a blind or a mask is shared by sharing 32 bytes.

KEY_BYTES = 32
MAX_MODULUS = 2**60  # leaves head-room in a 64-bit word for one addition
_ZEROS = bytes(1 << 18)  # what the keystream is added to
_DERIVE_LIMIT = 255 * 32  # RFC 5869 section 2.3


def entropy(count: int) -> bytes:
    """Return `count` bytes from the operating system's generator. Raises OutOfRange below 1."""
    if count < 1:
        raise OutOfRange("At least one byte of entropy must be asked for.")
    return os.urandom(count)


def derive(secret: bytes, *labels: str | bytes, length: int = KEY_BYTES) -> bytes:
    """Return `length` bytes bound to `secret` and to the exact sequence of labels.

    HKDF-SHA256 (RFC 5869) without salt. Each label enters `info` with its length before it, so
    ("ab", "c") and ("a", "bc") give unrelated keys, and with a tag that tells text from bytes.
    Raises InvalidKey for a secret under 16 bytes, OutOfRange for an impossible length.
    """
    if len(secret) < 16:
        raise InvalidKey("A secret of fewer than 16 bytes cannot carry a key.")
    if not 1 <= length <= _DERIVE_LIMIT:
        raise OutOfRange(f"HKDF-SHA256 gives between 1 and {_DERIVE_LIMIT} bytes.")
    return _hkdf(secret, salt=None, info=_info(*labels), length=length)


def _hkdf(secret: bytes, *, salt: bytes | None, info: bytes, length: int) -> bytes:
    """RFC 5869 itself, kept apart from our labels so that its published vectors can be run."""
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)


@lru_cache(maxsize=256)  # a client derives a key for each neighbour, under the same labels
def _info(*labels: str | bytes) -> bytes:
    return b"secure-fgl/derive\0" + b"".join(map(_label, labels))


def _label(label: str | bytes) -> bytes:
    tag, raw = (b"s", label.encode("utf-8")) if isinstance(label, str) else (b"b", bytes(label))
    return tag + struct.pack("<Q", len(raw)) + raw


class Stream(Mute):
    """The AES-256-CTR keystream of one key, read from its beginning.

    One key makes one sequence, and each call continues where the last one stopped. Never build two
    streams from one key for two purposes: derive a key for each.
    """

    __slots__ = ("_encryptor",)

    def __init__(self, key: bytes) -> None:
        """Start the stream of a 32-byte `key`; raises InvalidKey for any other length."""
        if len(key) != KEY_BYTES:
            raise InvalidKey(f"A stream needs a key of exactly {KEY_BYTES} bytes.")
        # A fixed counter start is safe because every key is derived for one use.
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def bytes(self, count: int) -> bytes:
        """Return the next `count` keystream bytes."""
        if count < 0:
            raise OutOfRange("A stream cannot be read backwards.")
        return self._encryptor.update(bytes(count))

    def fill(self, buffer: NDArray[np.uint8]) -> None:
        """Overwrite a contiguous `buffer`, shape (n,), with the next n keystream bytes.

        Nothing is allocated, so a long mask costs its AES and no more. Raises OutOfRange.
        """
        if buffer.dtype != np.uint8 or buffer.ndim != 1 or not buffer.flags.c_contiguous:
            raise OutOfRange("A stream fills a contiguous vector of bytes.")
        for start in range(0, buffer.size, len(_ZEROS)):
            part = buffer[start : start + len(_ZEROS)]
            self._encryptor.update_into(memoryview(_ZEROS)[: part.size], part.data)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` little-endian 64-bit words, shape (count,)."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8").astype(np.uint64)

    def uniform(self, modulus: int, count: int) -> NDArray[np.uint64]:
        """Return `count` values exactly uniform on 0 … modulus-1, shape (count,).

        A power of two is masked; any other modulus is drawn by rejection, so there is no modulo
        bias. The result is the first `count` accepted words of the stream and nothing behind them
        is consumed, hence both ends of a shared key stay in step. Raises OutOfRange unless
        1 <= modulus <= 2^60.
        """
        if not 1 <= modulus <= MAX_MODULUS:
            raise OutOfRange("A modulus must lie between 1 and 2^60.")
        mask = np.uint64((1 << (modulus - 1).bit_length()) - 1)
        values = self.words(count) & mask
        if modulus & (modulus - 1) == 0:
            return values
        values = values[values < np.uint64(modulus)]
        while values.size < count:
            more = self.words(count - values.size) & mask
            values = np.concatenate([values, more[more < np.uint64(modulus)]])
        return values

    def unit(self, count: int) -> NDArray[np.float64]:
        """Return `count` values uniform on the multiples of 2^-53 in [0, 1), shape (count,)."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
