"""Sealing to one named role: HPKE (RFC 9180, base mode, one shot) over a hybrid KEM.

Suite: MLKEM768-X25519 (draft-irtf-cfrg-concrete-hybrid-kems), HKDF-SHA256, AES-256-GCM. A recording
made today stays shut unless both ML-KEM-768 and X25519 fall. `info` binds a sealed message to its
header: the same bytes under another header do not open.

A sealed message is the KEM's encapsulation followed by the AEAD ciphertext and its tag.
"""

import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from crypto.errors import InvalidKey, InvalidSeal
from crypto.samplers import Mute, derive
from crypto.signing import key_id

__all__ = ["KEY_BYTES", "SEAL_OVERHEAD", "OpeningKey", "SealingKey"]

_MLKEM_PUBLIC = 1184  # FIPS 203 table 3
_MLKEM_CIPHERTEXT = 1088
_X25519_BYTES = 32  # RFC 7748
_TAG_BYTES = 16
KEY_BYTES = _MLKEM_PUBLIC + _X25519_BYTES
SEAL_OVERHEAD = _MLKEM_CIPHERTEXT + _X25519_BYTES + _TAG_BYTES
"""How many bytes a sealed message is longer than its plaintext, exactly."""


_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class SealingKey:
    """The public half: anyone may seal to it. Its bytes are ML-KEM-768 ‖ X25519, 1,216 in all."""

    __slots__ = ("_id", "_key", "_raw")

    def __init__(self, raw: bytes) -> None:
        """Take the key's bytes; raises InvalidKey unless they are two well-formed public keys."""
        if len(raw) != KEY_BYTES:
            raise InvalidKey(f"A sealing key has exactly {KEY_BYTES} bytes.")
        self._raw, self._id = bytes(raw), ""
        try:
            self._key = MLKEM768X25519PublicKey(
                MLKEM768PublicKey.from_public_bytes(self._raw[:_MLKEM_PUBLIC]),
                X25519PublicKey.from_public_bytes(self._raw[_MLKEM_PUBLIC:]),
            )
        except ValueError:
            raise InvalidKey from None

    @classmethod
    def from_bytes(cls, raw: bytes) -> "SealingKey":
        """Return the key of these bytes; raises InvalidKey."""
        return cls(raw)

    @property
    def raw(self) -> bytes:
        """The key's 1,216 bytes."""
        return self._raw

    @property
    def key_id(self) -> str:
        """The key's short public name, 16 hex digits."""
        self._id = self._id or key_id(self._raw)
        return self._id

    def seal(self, info: bytes, plaintext: bytes) -> bytes:
        """Seal `plaintext` to this key under `info`; the result is `SEAL_OVERHEAD` bytes longer.

        Raises InvalidKey if the key is of low order, so that nothing is sealed to everyone.
        """
        try:
            return _SUITE.encrypt(plaintext, self._key, info=info)
        except ValueError:
            raise InvalidKey from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SealingKey) and hmac.compare_digest(self._raw, other._raw)

    def __hash__(self) -> int:
        return hash(self._raw)

    def __repr__(self) -> str:
        return f"SealingKey({self.key_id})"


class OpeningKey(Mute):
    """The secret half: opens what was sealed to its public half."""

    __slots__ = ("_key", "_public")

    def __init__(self, mlkem: MLKEM768PrivateKey, x25519: X25519PrivateKey) -> None:
        """Join two library keys; use `generate` or `from_seed` instead."""
        self._key = MLKEM768X25519PrivateKey(mlkem, x25519)
        self._public = SealingKey(
            mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()
        )

    @classmethod
    def generate(cls) -> "OpeningKey":
        """Make a new key from the operating system's entropy."""
        return cls(MLKEM768PrivateKey.generate(), X25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> "OpeningKey":
        """Rebuild the key of a secret 32-byte seed from a key store; raises InvalidKey."""
        if len(seed) != 32:
            raise InvalidKey("An opening key's seed has exactly 32 bytes.")
        return cls(
            MLKEM768PrivateKey.from_seed_bytes(derive(seed, "hpke", "ml-kem-768", length=64)),
            X25519PrivateKey.from_private_bytes(derive(seed, "hpke", "x25519")),
        )

    @property
    def public(self) -> SealingKey:
        """The key to which others seal."""
        return self._public

    def open(self, info: bytes, sealed: bytes | memoryview) -> bytes:
        """Return the plaintext sealed to this key under `info`, or raise InvalidSeal."""
        if len(sealed) < SEAL_OVERHEAD:
            raise InvalidSeal
        try:
            return _SUITE.decrypt(sealed, self._key, info=info)
        except (InvalidTag, ValueError):
            raise InvalidSeal from None
