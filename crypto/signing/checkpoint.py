"""A log's signed head in the format that transparency logs share (C2SP tlog-checkpoint).

The text is the origin, the size in decimal and the root in base64, one per line, an empty line, and
one signature line of C2SP signed-note: an em dash, the signer's name and base64(key hash ‖ Ed25519
signature), with key hash = SHA-256(name ‖ 0x0A ‖ 0x01 ‖ public key)[:4]. So a head of ours can be
checked with anybody's tool.

    https://c2sp.org/tlog-checkpoint   https://c2sp.org/signed-note
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

from crypto.errors import InvalidSignature, NotCanonical, OutOfRange
from crypto.signing.merkle import HASH_BYTES
from crypto.signing.signatures import SIGNATURE_BYTES, SigningKey, VerifyKey

__all__ = ["MAX_TEXT", "Checkpoint", "key_hash", "read"]

MAX_TEXT = 4096  # bytes; a real checkpoint has under 400
_ED25519 = 0x01
_HASH_PREFIX = 4
_DASH = "\u2014 "
_MAX_SIZE = 2**63 - 1
_LINES = 6  # origin, size, root, empty line, one signature line, and the rest after the last \n


def key_hash(name: str, key: VerifyKey) -> bytes:
    """Return the four bytes by which a signature line points at its key (signed-note)."""
    raw = name.encode("utf-8") + b"\n" + bytes([_ED25519]) + key.raw
    return hashlib.sha256(raw).digest()[:_HASH_PREFIX]


def _check_name(name: str) -> None:
    if not (0 < len(name) <= 128 and name.isprintable() and "+" not in name and " " not in name):
        raise OutOfRange("A signer's name is 1 to 128 printable characters without space or plus.")


@dataclass(frozen=True)
class Checkpoint:
    """The head of one log: `size` entries hash to `root` (32 bytes); `origin` names the log."""

    origin: str
    size: int
    root: bytes

    def __post_init__(self) -> None:
        """Refuse what could not be written down and read back; raises OutOfRange."""
        if not (0 < len(self.origin) <= 256 and self.origin.isprintable()):
            raise OutOfRange("An origin is 1 to 256 printable characters on one line.")
        if not 0 <= self.size <= _MAX_SIZE:
            raise OutOfRange("A log's size lies between 0 and 2^63 - 1.")
        if len(self.root) != HASH_BYTES:
            raise OutOfRange(f"A log's root has exactly {HASH_BYTES} bytes.")

    def text(self) -> str:
        """Return the part that is signed, with its final newline."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    def sign(self, key: SigningKey, name: str) -> str:
        """Return the whole note: the text, an empty line and the signature line of `name`."""
        return self.note(key.sign_raw(self.text().encode("utf-8")), name, key.public)

    def note(self, signature: bytes, name: str, key: VerifyKey) -> str:
        """Return the whole note with a signature of `name` over `text`, which is not checked."""
        _check_name(name)
        raw = key_hash(name, key) + signature
        return f"{self.text()}\n{_DASH}{name} {base64.b64encode(raw).decode()}\n"


def read(text: str, *, name: str, key: VerifyKey) -> Checkpoint:
    """Return the checkpoint that `name` signed with `key`.

    Strict: exactly one signature line, no extension lines, no second spelling of size or root.
    Raises NotCanonical if the text has another form, InvalidSignature if it was not signed so.
    """
    _check_name(name)
    if len(text) > MAX_TEXT:
        raise NotCanonical(f"A checkpoint is at most {MAX_TEXT} characters.")
    lines = text.split("\n")
    if len(lines) != _LINES or lines[3] or lines[5]:
        raise NotCanonical
    signature = _signature(lines[4], name, key)
    try:
        found = Checkpoint(lines[0], _size(lines[1]), _base64(lines[2]))
        signed = found.text().encode("utf-8")
    except (OutOfRange, UnicodeEncodeError):
        raise NotCanonical from None
    # The text is rebuilt from what was read, so only its one spelling can verify.
    key.verify_raw(signature, signed)
    return found


def _signature(line: str, name: str, key: VerifyKey) -> bytes:
    prefix = f"{_DASH}{name} "
    if not line.startswith(_DASH):
        raise NotCanonical
    if not line.startswith(prefix):
        raise InvalidSignature
    raw = _base64(line.removeprefix(prefix))
    if len(raw) != _HASH_PREFIX + SIGNATURE_BYTES:
        raise NotCanonical
    if not hmac.compare_digest(raw[:_HASH_PREFIX], key_hash(name, key)):
        raise InvalidSignature
    return raw[_HASH_PREFIX:]


def _size(digits: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(_MAX_SIZE))):
        raise NotCanonical
    if digits != str(int(digits)):
        raise NotCanonical
    return int(digits)


def _base64(encoded: str) -> bytes:
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise NotCanonical from None
    if base64.b64encode(raw).decode() != encoded:
        raise NotCanonical
    return raw
