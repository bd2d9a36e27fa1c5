"""Every way in which the ground floor can refuse.

The tree is flat on purpose: a caller that must decide *why* a seal did not open would be an oracle.

    CryptoError
    ├── InvalidSignature     a signature does not belong to this key, domain and message
    ├── InvalidSeal          a sealed message does not open under this key and info
    ├── InvalidKey           bytes or an object that are no usable key of the expected kind
    ├── InvalidCiphertext    bytes that are no ciphertext under the expected parameters
    ├── InvalidPoint         bytes that are no usable element of the group
    ├── SecretKeyRefused     secret key material was offered where only public keys may stand
    ├── SelfTestFailed       a primitive did not agree with itself on this installation
    ├── NotLoaded            a library that a primitive needs could not be loaded here
    ├── InvalidProof         a Merkle proof does not connect the two hashes
    ├── InvalidSum           a total is not what the parties' vectors add up to
    ├── NotCanonical         bytes or a value without exactly one accepted encoding
    └── OutOfRange           a number outside the range in which the arithmetic is exact

No text holds a data value, a key or a byte of input. `str(error)` is written for an operator; the
separate parts are in `diagnostics()`.
"""

from typing import ClassVar

__all__ = [
    "CryptoError",
    "InvalidCiphertext",
    "InvalidKey",
    "InvalidPoint",
    "InvalidProof",
    "InvalidSeal",
    "InvalidSignature",
    "InvalidSum",
    "NotCanonical",
    "NotLoaded",
    "OutOfRange",
    "SecretKeyRefused",
    "SelfTestFailed",
]


class CryptoError(Exception):
    """Base of all refusals of this floor.

    `detail` is a fixed sentence of ours about a public parameter (a length, a limit); it must
    never be built from input data.
    """

    what: ClassVar[str] = "A cryptographic operation was refused."
    why: ClassVar[str] = "The input does not meet the operation's contract."
    todo: ClassVar[str] = "Discard the input."

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or self.what)

    def diagnostics(self) -> tuple[str, str, str]:
        """Return (what happened, why likely, what to do next)."""
        return str(self), self.why, self.todo

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else self.what


class InvalidSignature(CryptoError):
    """A signature does not belong to this key, domain and message."""

    what = "The signature does not verify."
    why = "The message, its domain or the signer's key is not the one that was signed."
    todo = "Discard the message; compare the signer's key id with the roster."


class InvalidSeal(CryptoError):
    """A sealed message does not open under this key and info."""

    what = "The sealed message does not open."
    why = "It was altered, sealed to another key, or sealed under another header."
    todo = "Discard it; compare the recipient's key id with the one that was published."


class InvalidKey(CryptoError):
    """Bytes or an object that are no usable key of the expected kind."""

    what = "The key is not usable."
    why = "It has the wrong length, tag or parameters, or it was destroyed."
    todo = "Ask its owner to publish the key again."


class InvalidCiphertext(CryptoError):
    """Bytes that are no ciphertext under the expected parameters."""

    what = "The ciphertext is not acceptable."
    why = "It has the wrong length or was made under other parameters."
    todo = "Discard it; check that both sides run the same scheme."


class InvalidPoint(CryptoError):
    """Bytes that are no usable element of the group: not canonical, or the identity."""

    what = "A point is not acceptable."
    why = "It is no canonical encoding, or the identity, which tells nothing of a key."
    todo = "Discard the batch; whoever sent it made it wrong or altered it."


class SecretKeyRefused(CryptoError):
    """Secret key material was offered where only public keys may stand."""

    what = "Secret key material was offered where a public key is expected."
    why = "A key authority handed on an object of its library, which may be the secret key itself."
    todo = "Treat that key as compromised: destroy it, make a new one, publish `PublicKey.raw`."


class SelfTestFailed(CryptoError):
    """A primitive did not agree with itself on this installation."""

    what = "A self-test of a primitive failed."
    why = "An installed library is of an unexpected version or damaged."
    todo = "Reinstall the pinned dependencies and run the tests of this floor."


class NotLoaded(CryptoError):
    """A library that a primitive needs could not be loaded on this machine."""

    what = "libsodium could not be loaded."
    why = (
        "Its loader writes a copy of it to the folder for temporary files at each start, where "
        "nothing may be written, or nothing be executed (noexec)."
    )
    todo = "Let TMPDIR name a folder that may hold programs, or mount /tmp with exec."


class InvalidProof(CryptoError):
    """A Merkle proof does not connect the two hashes."""

    what = "The Merkle proof does not verify."
    why = "The log was rewritten, or the proof belongs to another entry or size."
    todo = "Keep both heads as evidence and stop trusting the log."


class InvalidSum(CryptoError):
    """A total is not what the parties' vectors add up to."""

    what = "The total does not fit its check."
    why = "Whoever added up changed it, or left a party out that it names."
    todo = "Discard the total, and trust that party no longer."


class NotCanonical(CryptoError):
    """Bytes or a value without exactly one accepted encoding."""

    what = "The encoding is not canonical."
    why = "Another encoder wrote it, or it was edited."
    todo = "Encode the value with crypto.signing."


class OutOfRange(CryptoError):
    """A number outside the range in which the arithmetic is exact."""

    what = "A number is outside the range in which the arithmetic is exact."
    why = "A value was not clipped, or the head-room is too small for the cohort."
    todo = "Clip first, lower the number of bits, or reduce the cohort."
