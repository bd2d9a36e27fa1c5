"""Secrets at rest: what a party must find again after its process was killed, locked.

Everything is locked under a 32-byte key that its party keeps elsewhere (a key store, a file of its
own). Each piece gets a key of its own, derived with 32 fresh random bytes, so that the same store
key may lock any number of pieces (`crypto.aead` locks one message per key).
"""

from __future__ import annotations

from crypto.aead import lock, unlock
from crypto.errors import InvalidSeal
from crypto.samplers import derive, entropy

__all__ = ["lock_at_rest", "new_key", "unlock_at_rest"]

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
