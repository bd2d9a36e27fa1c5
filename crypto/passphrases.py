"""A secret under a passphrase that a person keeps: scrypt (RFC 7914), then AES-256-GCM.

A passphrase has far less chance in it than a key, so what counts is how long one guess takes. With
N = 2^17, r = 8, p = 1 (the first choice of OWASP's Password Storage Cheat Sheet) a guess takes
128 MiB and some tenths of a second. The cost is part of the format and is not read from the file:
otherwise whoever may write the file could ask for terabytes, or for next to nothing.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from crypto.aead import OVERHEAD, lock, unlock
from crypto.errors import InvalidSeal
from crypto.samplers import KEY_BYTES, entropy

__all__ = ["lock_under", "unlock_under"]

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
