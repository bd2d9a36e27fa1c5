"""Secrets under a key: AES-256-GCM (NIST SP 800-38D), at rest, under passphrases (RFC 7914)."""

from __future__ import annotations

from collections.abc import Iterable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from crypto.errors import InvalidKey, InvalidSeal
from crypto.samplers import KEY_BYTES, derive, entropy

# --- Locking one message under one symmetric key: AES-256-GCM (NIST SP 800-38D) ---
#
# For keys that two parties derived for exactly one message, such as the shares that two clients
# hand each other through the aggregator. The nonce is fixed because the key never serves again:
# locking a second message under one key would give both away and let anyone forge a third. Messages
# that are locked together (`lock_each`) share a key, and each has a nonce of its own.

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


# --- Secrets at rest: what a party must find again after its process was killed, locked ---
#
# Everything is locked under a 32-byte key that its party keeps elsewhere (a key store, a file of
# its own). Each piece gets a key of its own, derived with 32 fresh random bytes, so that the same
# store key may lock any number of pieces (`crypto.aead` locks one message per key).

_SALT_BYTES = 32


def new_key() -> bytes:
    """Return a new 32-byte key from the operating system's entropy."""
    return entropy(32)


def lock_at_rest(key: bytes, info: bytes, plaintext: bytes) -> bytes:
    """Return `plaintext` locked under a store's 32-byte key, bound to `info`.

    Whoever holds the key reads it; nobody else learns more than its length. Raises InvalidKey for
    any other length of key.
    """
    salt = entropy(_SALT_BYTES)
    return salt + lock(derive(key, "rest", salt.hex()), info, plaintext)


def unlock_at_rest(key: bytes, info: bytes, locked: bytes) -> bytes:
    """Return what was locked under `key` and `info`.

    Raises:
        InvalidSeal: another key or info, or a changed byte.
        InvalidKey: a key of another length.
    """
    if len(locked) < _SALT_BYTES:
        raise InvalidSeal
    salt, body = locked[:_SALT_BYTES], locked[_SALT_BYTES:]
    return unlock(derive(key, "rest", salt.hex()), info, body)


# --- A secret under a passphrase that a person keeps: scrypt (RFC 7914), then AES-256-GCM ---
#
# A passphrase has far less chance in it than a key, so what counts is how long one guess takes.
# With N = 2^17, r = 8, p = 1 (the first choice of OWASP's Password Storage Cheat Sheet) a guess
# takes 128 MiB and some tenths of a second. The cost is part of the format and is not read from the
# file: otherwise whoever may write the file could ask for terabytes, or for next to nothing.

_SALT = 16
_COST, _BLOCK, _LANES = 1 << 17, 8, 1


def lock_under(passphrase: bytes, info: bytes, secret: bytes) -> bytes:
    """Return a fresh salt and `secret`, locked under a key made from passphrase and salt.

    Args:
        passphrase: as many bytes as one likes; how strong it is nobody looks at here.
        info: is bound, not carried: the same bytes under another info do not open.
        secret: what is locked; its length is seen.
    """
    salt = entropy(_SALT)
    return salt + lock(_key(passphrase, salt), info, secret)


def unlock_under(passphrase: bytes, info: bytes, locked: bytes) -> bytes:
    """Return what `lock_under` locked; raises InvalidSeal for another passphrase, info or byte."""
    if len(locked) < _SALT + OVERHEAD:
        raise InvalidSeal
    return unlock(_key(passphrase, locked[:_SALT]), info, locked[_SALT:])


def _key(passphrase: bytes, salt: bytes) -> bytes:
    return Scrypt(salt, KEY_BYTES, _COST, _BLOCK, _LANES).derive(passphrase)
