r"""Ed25519 signatures (RFC 8032) that say what kind of thing they sign.

A signature over b"secure-fgl/" + domain + b"\0" + message cannot be replayed as a signature of
another kind: domains hold no NUL byte, so the pair (domain, message) is read back uniquely.
"""

import hashlib
import hmac
from functools import lru_cache

from cryptography.exceptions import InvalidSignature as _Rejected
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from crypto.errors import InvalidKey, InvalidSignature, OutOfRange
from crypto.handles import Mute

__all__ = ["KEY_BYTES", "SIGNATURE_BYTES", "SigningKey", "VerifyKey", "key_id"]

KEY_BYTES = 32
SIGNATURE_BYTES = 64
_ID_CHARACTERS = 16
_MAX_DOMAIN = 64
_MOST_KNOWN = 1 << 16
_P = 2**255 - 19
_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL = {0, 1, _P - 1, _ORDER_8, _P - _ORDER_8}
"""y of the eight points of small order: (0, 1), (0, -1), (±i, 0), and the four of order 8."""


_KNOWN: set[bytes] = set()
"""Digests of the last signatures that were found true, with their keys and messages.

Whether a signature is true depends on these three public values alone, so it never changes, and
parties that share a process need not each find it out: a thousand clients' holders look at the same
headers and votes. What is false is never remembered. SHA-256 stands between a true and a false one.
"""


def key_id(raw: bytes) -> str:
    """Return the short public name of a key: the first 16 hex digits of the SHA-256 of its bytes.

    A name for logs and look-ups, not a commitment: compare `raw` where it matters.
    """
    return hashlib.sha256(raw).hexdigest()[:_ID_CHARACTERS]


def _framed(domain: str, message: bytes) -> bytes:
    return _frame(domain) + message


@lru_cache(maxsize=64)
def _frame(domain: str) -> bytes:
    if not (0 < len(domain) <= _MAX_DOMAIN and domain.isascii() and domain.isprintable()):
        raise OutOfRange(f"A domain is 1 to {_MAX_DOMAIN} printable ASCII characters.")
    return b"secure-fgl/" + domain.encode("ascii") + b"\0"


class VerifyKey:
    """The public half of a signing key; hashable, comparable, printable."""

    __slots__ = ("_key", "_raw")

    def __init__(self, raw: bytes) -> None:
        """Take the 32 bytes of RFC 8032 section 5.1.5; raises InvalidKey for anything else.

        Refused, too, are a y of p or more, which is a second spelling of another key, and the
        points of order 1, 2, 4 and 8, under which one signature holds for many messages.
        """
        if len(raw) != KEY_BYTES:
            raise InvalidKey(f"An Ed25519 public key has exactly {KEY_BYTES} bytes.")
        y = int.from_bytes(raw, "little") & ((1 << 255) - 1)
        if y >= _P or y in _SMALL:
            raise InvalidKey("An Ed25519 public key is of small order, or not in canonical form.")
        try:
            self._key = Ed25519PublicKey.from_public_bytes(bytes(raw))
        except ValueError:
            raise InvalidKey from None
        self._raw = bytes(raw)

    @property
    def raw(self) -> bytes:
        """The key's 32 bytes."""
        return self._raw

    @property
    def key_id(self) -> str:
        """The key's short public name, 16 hex digits."""
        return key_id(self._raw)

    def verify(self, domain: str, signature: bytes, message: bytes) -> None:
        """Check that this key signed (domain, message); raises InvalidSignature otherwise."""
        self.verify_raw(signature, _framed(domain, message))

    def verify_raw(self, signature: bytes, message: bytes) -> None:
        """Verify plain RFC 8032 Ed25519 without a domain; raises InvalidSignature.

        For formats that others define (C2SP signed notes in `crypto.signing.checkpoint`) and for
        published test vectors; everything of our own goes through `verify`.
        """
        signature = bytes(signature)  # of another buffer, len would count its elements
        if len(signature) != SIGNATURE_BYTES:
            raise InvalidSignature
        known = hashlib.sha256(self._raw + signature + message).digest()
        if known in _KNOWN:
            return
        try:
            self._key.verify(signature, message)
        except _Rejected:
            raise InvalidSignature from None
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()  # one step for threads, unlike dropping the oldest
        _KNOWN.add(known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VerifyKey) and hmac.compare_digest(self._raw, other._raw)

    def __hash__(self) -> int:
        return hash(self._raw)

    def __repr__(self) -> str:
        return f"VerifyKey({self.key_id})"


class SigningKey(Mute):
    """The secret half: signs, gives its public half, and never shows its bytes."""

    __slots__ = ("_key", "_public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        """Wrap a library key; use `generate` or `from_seed` instead."""
        self._key = key
        self._public = VerifyKey(key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> "SigningKey":
        """Make a new key from the operating system's entropy."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> "SigningKey":
        """Rebuild the key of a 32-byte RFC 8032 seed; raises InvalidKey for another length.

        The seed *is* the secret key: keep it in a key store and nowhere else.
        """
        if len(seed) != KEY_BYTES:
            raise InvalidKey(f"An Ed25519 seed has exactly {KEY_BYTES} bytes.")
        return cls(Ed25519PrivateKey.from_private_bytes(bytes(seed)))

    @property
    def public(self) -> VerifyKey:
        """The key that verifies this one's signatures."""
        return self._public

    def sign(self, domain: str, message: bytes) -> bytes:
        """Return the 64-byte signature of (domain, message); raises OutOfRange for a bad domain."""
        return self._key.sign(_framed(domain, message))

    def sign_raw(self, message: bytes) -> bytes:
        """Sign without a domain: for the foreign formats of `checkpoint` and `dsse` in this folder.

        A checkpoint is text without NUL bytes that begins "secure-fgl/", a DSSE encoding begins
        "DSSEv1 ", and a framed message has a NUL in its first line, so none can be read as another.
        """
        return self._key.sign(message)
