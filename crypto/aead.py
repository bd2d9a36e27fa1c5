"""Locking one message under one symmetric key: AES-256-GCM (NIST SP 800-38D).

For keys that two parties derived for exactly one message, such as the shares that two clients hand
each other through the aggregator. The nonce is fixed because the key never serves again: locking a
second message under one key would give both away and let anyone forge a third. Messages that are
locked together (`lock_each`) share a key, and each has a nonce of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crypto.errors import InvalidKey, InvalidSeal
from crypto.samplers import KEY_BYTES

__all__ = ["OVERHEAD", "fingerprint", "lock", "lock_each", "lock_into", "unlock", "unlock_one"]

OVERHEAD = 16
"""How many bytes a locked message is longer than its plaintext, exactly."""
_NONCE = bytes(12)


def lock(key: bytes, info: bytes, plaintext: bytes) -> bytes:
    """Return `plaintext` locked under a 32-byte `key` that serves no other message.

    `info` is bound, not carried: the same bytes under another info do not open. The result is
    `OVERHEAD` bytes longer than `plaintext`. Raises InvalidKey for any other length of key.
    """
    return _cipher(key).encrypt(_NONCE, plaintext, info)


def lock_each(key: bytes, messages: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """Return each plaintext locked by itself, under its number, one call and one key for all.

    Args:
        key: of 32 bytes, which serves this call and no other.
        messages: info and plaintext of each, see `lock`; fewer than 2^32 (SP 800-38D).
    """
    cipher = _cipher(key)
    return [cipher.encrypt(_nonce(n), data, info) for n, (info, data) in enumerate(messages)]


def lock_into(
    key: bytes, info: bytes, plaintext: bytes | memoryview, buffer: bytearray
) -> memoryview:
    """Lock as `lock` does, into the beginning of a buffer, which is made larger where it must be.

    Returns the locked bytes as a view of the buffer, valid until that is used again.
    """
    size = len(plaintext) + OVERHEAD
    if len(buffer) < size:
        buffer.extend(bytes(size - len(buffer)))
    view = memoryview(buffer)[:size]
    _cipher(key).encrypt_into(_NONCE, plaintext, info, view)
    return view


def fingerprint(key: bytes, data: bytes | memoryview) -> bytes:
    """Return 16 bytes that tell contents apart, for a key whose fingerprints nobody else sees.

    This is GMAC under one nonce: a universal hash under a secret key, several times as fast as
    SHA-256. Two contents that do not depend on the key collide with a chance below 2^-100. Whoever
    saw two fingerprints could make contents that collide, so none is ever written or sent.
    """
    return _cipher(key).encrypt(_NONCE, b"", data)


def unlock(key: bytes, info: bytes, locked: bytes) -> bytes:
    """Return what was locked under `key` and `info`; raises InvalidSeal, or InvalidKey."""
    cipher = _cipher(key)
    try:
        return cipher.decrypt(_NONCE, locked, info)  # what is shorter than a tag has a wrong one
    except InvalidTag:
        raise InvalidSeal from None


def unlock_one(key: bytes, number: int, info: bytes, locked: bytes) -> bytes:
    """Return what `lock_each` locked under a number; raises InvalidSeal, or InvalidKey."""
    cipher = _cipher(key)
    try:
        return cipher.decrypt(_nonce(number), locked, info)
    except InvalidTag:
        raise InvalidSeal from None


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _cipher(key: bytes) -> AESGCM:
    if len(key) != KEY_BYTES:
        raise InvalidKey(f"A message is locked under a key of exactly {KEY_BYTES} bytes.")
    return AESGCM(key)
