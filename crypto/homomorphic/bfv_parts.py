"""What all schemes of `crypto.homomorphic.he` share: typed keys, plaintext checks, blinds (O1, O9).

Each adds integers mod t under a public key. Nothing here touches a homomorphic-encryption library.
"""

import hashlib
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crypto.errors import InvalidCiphertext, InvalidKey, OutOfRange, SecretKeyRefused
from crypto.samplers import Mute, Stream, derive

__all__ = [
    "Accumulator",
    "PlainRing",
    "PublicKey",
    "SecretKey",
    "parameter_digest",
    "refuse_secret",
    "rest_info",
]

_KEY_ID_CHARACTERS = 32
_SEAL_MAGIC = b"\x5e\xa1"  # SEAL 4, Serialization::seal_magic, little-endian


def parameter_digest(description: str) -> bytes:
    """Return the 32 bytes that stand for a parameter set in keys and key ids."""
    return hashlib.sha256(b"secure-fgl/bfv\0" + description.encode("ascii")).digest()


def rest_info(key_id: str) -> bytes:
    """Return what a secret key that is locked at rest is bound to."""
    return b"secure-fgl/he-secret\0" + key_id.encode("ascii")


class PublicKey:
    """A public key that has been checked; made by `keygen` and `load_public` only."""

    __slots__ = ("_handle", "_raw", "_scheme")

    def __init__(self, scheme: str, raw: bytes, handle: object) -> None:
        """Bind checked wire bytes to the library object loaded from them."""
        self._scheme, self._raw, self._handle = scheme, raw, handle

    @property
    def raw(self) -> bytes:
        """The wire form: tag, parameter digest, key; of fixed length."""
        return self._raw

    @property
    def key_id(self) -> str:
        """Hash of parameters and key, 32 hex digits: safe to compare and to sign."""
        return hashlib.sha256(self._raw).hexdigest()[:_KEY_ID_CHARACTERS]

    @property
    def scheme(self) -> str:
        """The name of the scheme that it was made for."""
        return self._scheme

    def use(self, scheme: str) -> Any:
        """Return the library object for `scheme`; raises InvalidKey if made for another one."""
        if self._scheme != scheme:
            raise InvalidKey("The public key belongs to another scheme.")
        return self._handle

    def __repr__(self) -> str:
        return f"PublicKey({self._scheme}, {self.key_id})"


class SecretKey(Mute):
    """A handle on a secret key inside the library; it has no copy and no face.

    Its bytes leave the library only locked under a key store's key (`Scheme.lock_secret`).

    SEAL clears the memory of secret keys when it frees them; CPython gives no guarantee beyond
    that, so `destroy` ends the key's use at once and its memory's life as soon as it can.
    """

    __slots__ = ("_handle", "_key_id", "_scheme")

    def __init__(self, scheme: str, key_id: str, handle: object) -> None:
        """Take over the library object; the caller must drop its own reference."""
        self._scheme, self._key_id, self._handle = scheme, key_id, handle

    @property
    def key_id(self) -> str:
        """The id of the public key to which this one belongs."""
        return self._key_id

    @property
    def scheme(self) -> str:
        """The name of the scheme that it was made for."""
        return self._scheme

    def use(self, scheme: str) -> Any:
        """Return the library object for `scheme`; raises InvalidKey if foreign or destroyed."""
        if self._handle is None:
            raise InvalidKey("The secret key was destroyed.")
        if self._scheme != scheme:
            raise InvalidKey("The secret key belongs to another scheme.")
        return self._handle

    def destroy(self) -> None:
        """Forget the key; every later use raises InvalidKey. Harmless when repeated."""
        self._handle = None


class Accumulator(Protocol):
    """A running sum of uploads of one shape, in the encrypted domain; holds no secret."""

    @property
    def count(self) -> int:
        """How many uploads have been added."""

    @property
    def coefficients(self) -> int:
        """How many coefficients the sum has; 0 before the first upload."""

    def add(self, blob: bytes) -> None:
        """Add one upload. Raises InvalidCiphertext, or OutOfRange past the scheme's `max_terms`."""

    def add_plain(self, coefficients: NDArray[np.uint64]) -> None:
        """Add plaintext mod t, exactly one value per coefficient, so that a blind has no gap.

        Raises OutOfRange for another length or a value of t or more.
        """

    def to_bytes(self) -> bytes:
        """Return the sum as wire bytes. Raises OutOfRange if nothing was added."""


class PlainRing:
    """Plaintext vectors mod t, `degree` coefficients per ciphertext; base of all schemes."""

    name: str
    degree: int
    plain_modulus: int
    ciphertext_bytes: int

    @property
    def plain_bits(self) -> int:
        """floor(log2 t): every number of so many bits fits into a coefficient."""
        return self.plain_modulus.bit_length() - 1

    def blind(self, seed: bytes, count: int) -> NDArray[np.uint64]:
        """Return `count` values exactly uniform mod t, determined by a 32-byte `seed` (O1)."""
        return Stream(derive(seed, "blind")).uniform(self.plain_modulus, count)

    def subtract(self, values: NDArray[np.uint64], blind: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return values - blind mod t, shape kept; raises OutOfRange for unequal shapes."""
        left, right = self._plain(values), self._plain(blind)
        if left.shape != right.shape:
            raise OutOfRange("A blind has exactly one value per coefficient.")
        modulus = np.uint64(self.plain_modulus)
        return (left + (modulus - right)) % modulus

    def _plain(self, coefficients: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Check a vector of numbers mod t; a cast would hide negative numbers."""
        array = np.asarray(coefficients)
        if array.ndim != 1 or array.dtype.kind != "u":
            raise OutOfRange("A vector of unsigned integers of shape (n,) is expected.")
        if array.size and int(array.max()) >= self.plain_modulus:
            raise OutOfRange("A plaintext coefficient is not below the plaintext modulus.")
        return array.astype(np.uint64, copy=False)

    def plain_rows(self, coefficients: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return shape (ciphertexts, degree), padded with zeros; at least one value is needed."""
        plain = self._plain(coefficients)
        if not plain.size:
            raise OutOfRange("There is nothing to encrypt.")
        rows = np.zeros((-(-plain.size // self.degree), self.degree), dtype="<u8")
        rows.reshape(-1)[: plain.size] = plain
        return rows

    def _ready(self, zeros: bytes, ciphertexts: int) -> bytes:
        """Check that `zeros` made ahead are exactly one per ciphertext; raises OutOfRange."""
        if len(zeros) != ciphertexts * self.ciphertext_bytes:
            raise OutOfRange("Exactly one encryption of zero per ciphertext must be handed in.")
        return zeros

    def _ciphertexts(self, blob: bytes, expected: int = 0) -> int:
        """Return how many whole ciphertexts `blob` holds; raises InvalidCiphertext."""
        count, rest = divmod(len(blob), self.ciphertext_bytes)
        if rest or not count or (expected and count != expected):
            raise InvalidCiphertext
        return count


def refuse_secret(raw: object) -> None:
    """Raise SecretKeyRefused if `raw` is, or may be, secret key material.

    A bare SEAL object carries no type, so a secret key looks like any other: it is refused as such.
    """
    if isinstance(raw, SecretKey):
        raise SecretKeyRefused
    if not isinstance(raw, (bytes, bytearray, memoryview)):
        raise InvalidKey("A public key is loaded from bytes.")
    data = bytes(raw)
    if data[: len(_SEAL_MAGIC)] == _SEAL_MAGIC:
        raise SecretKeyRefused
