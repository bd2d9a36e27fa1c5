"""Tags of items by one key that every client holds, and the field's tags that anyone can turn back.

`keyed_tags` is for a consortium that trusts one key: any client, together with whoever compares
tags, opens all of them. `unsafe_signature_tags` is what published code does under the name of
encryption, and `unsafe_public_tags` what its text describes; they exist as controls: with the
public key alone every tag of a known catalogue is found again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from crypto.errors import InvalidKey

__all__ = ["KEY_BYTES", "keyed_tags", "unsafe_public_tags", "unsafe_signature_tags"]

KEY_BYTES: Final = 32


def keyed_tags(key: bytes, inputs: Sequence[bytes]) -> list[bytes]:
    """Return HMAC-SHA256 of every input, 32 bytes each (RFC 2104).

    Args:
        key: 32 secret bytes, the same at every client and unknown to whoever compares tags.
        inputs: of any length.

    Raises:
        InvalidKey: the key has another length.
    """
    if len(key) != KEY_BYTES:
        raise InvalidKey(f"A key of tags has exactly {KEY_BYTES} bytes.")
    return [hmac.digest(key, given, "sha256") for given in inputs]


def unsafe_public_tags(key: bytes, inputs: Sequence[bytes]) -> list[bytes]:
    """UNSAFE: return every input encrypted deterministically, as 32 bytes each.

    X25519 with coins that are a hash of key and input (encrypt-with-hash: Bellare, Boldyreva and
    O'Neill, CRYPTO 2007), the point and the shared secret hashed. So equal inputs match, and
    whoever has the public key makes the tag of every guess.

    Args:
        key: a public key, 32 bytes (RFC 7748).
        inputs: of any length.

    Raises:
        InvalidKey: the key has another length, or shares no secret with anybody.
    """
    found = []
    try:
        public = X25519PublicKey.from_public_bytes(key)
        for given in inputs:
            coins = hashlib.sha256(b"secure-fgl/unsafe-tag\0" + key + given).digest()
            secret = X25519PrivateKey.from_private_bytes(coins)
            point, shared = secret.public_key().public_bytes_raw(), secret.exchange(public)
            found.append(hashlib.sha256(point + shared).digest())
    except ValueError as error:
        raise InvalidKey("This is no public key of X25519.") from error
    return found


def unsafe_signature_tags(key: RSAPrivateKey, inputs: Sequence[bytes]) -> list[bytes]:
    """UNSAFE: return the RSA PKCS #1 v1.5 signature of every input, of the key's length.

    Deterministic, so equal inputs match; and verifiable, so whoever has the public key tests every
    guess (FedPerGNN's public code, 2022).
    """
    made: dict[bytes, bytes] = {}
    for given in inputs:
        if given not in made:
            made[given] = key.sign(given, padding.PKCS1v15(), SHA256())
    return [made[given] for given in inputs]
