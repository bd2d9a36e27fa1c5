"""Signed statements in the envelope that supply-chain tools share (DSSE v1).

A signature covers PAE(type, body) = "DSSEv1" SP len(type) SP type SP len(body) SP body, so that a
body signed as one type cannot be read as another, and nothing has to be canonical to be verified.
The JSON envelope carries type and body (base64) beside the signatures; ``keyid`` is a hint by which
a key is looked up and decides nothing.

    https://github.com/secure-systems-lab/dsse  protocol.md and envelope.md, version 1.0
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crypto.errors import InvalidSignature, NotCanonical, OutOfRange
from crypto.signing.canonical import canonical, parse
from crypto.signing.signatures import SIGNATURE_BYTES, SigningKey, VerifyKey

__all__ = ["MAX_SIGNATURES", "Signature", "Signed", "pae", "read", "sign"]

MAX_SIGNATURES = 64
_MAX_TYPE = 128
_MEMBERS = {"payload", "payloadType", "signatures"}


def pae(payload_type: str, body: bytes) -> bytes:
    """Return the bytes that are signed (protocol.md, "Signature Definition").

    Raises OutOfRange for a type that is not 1 to 128 printable ASCII characters without spaces.
    """
    plain = payload_type.isascii() and payload_type.isprintable() and " " not in payload_type
    if not (plain and 0 < len(payload_type) <= _MAX_TYPE):
        raise OutOfRange(f"A payload type is 1 to {_MAX_TYPE} printable ASCII characters.")
    name = payload_type.encode("ascii")
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(body), body)


@dataclass(frozen=True)
class Signature:
    """One signature: the short name of its key, and its 64 bytes (Ed25519)."""

    keyid: str
    raw: bytes


@dataclass(frozen=True, repr=False)
class Signed:
    """A body, what it is, and who signed it. Unverified until `verify` returns."""

    payload_type: str
    body: bytes
    signatures: tuple[Signature, ...]

    def text(self) -> bytes:
        """Return the JSON envelope, in canonical JSON."""
        signatures = [{"keyid": s.keyid, "sig": _encode(s.raw)} for s in self.signatures]
        return canonical(
            {
                "payload": _encode(self.body),
                "payloadType": self.payload_type,
                "signatures": signatures,
            }
        )

    def verify(self, payload_type: str, keys: Mapping[str, VerifyKey]) -> tuple[VerifyKey, ...]:
        """Return the keys that signed, in order; every signature must be good.

        Args:
            payload_type: what the body must be.
            keys: short name (`VerifyKey.key_id`) -> key that may sign.

        Raises:
            InvalidSignature: there is none, one is by an unknown key or does not verify, or a key
                signed twice. Stricter than DSSE, where one good signature may be enough: one that
                cannot be judged does not pass unseen here.
            NotCanonical: the body is of another type.
        """
        if self.payload_type != payload_type:
            raise NotCanonical("The envelope carries another type of body.")
        signed, found = pae(self.payload_type, self.body), dict[str, VerifyKey]()
        for signature in self.signatures:
            key = keys.get(signature.keyid)
            if key is None or key.key_id != signature.keyid or signature.keyid in found:
                raise InvalidSignature
            key.verify_raw(signature.raw, signed)
            found[signature.keyid] = key
        if not found:
            raise InvalidSignature
        return tuple(found.values())

    def __repr__(self) -> str:
        """Return type and number of signatures; bodies are not for printing."""
        return f"<Signed {self.payload_type}, {len(self.signatures)} signatures>"


def sign(payload_type: str, body: bytes, keys: Sequence[SigningKey]) -> Signed:
    """Return the envelope of a body signed with each key.

    A signed body begins with "DSSEv1 ", which no checkpoint and no framed message of
    `crypto.signing.signatures` begins with, so none can be read as another. Raises OutOfRange for a
    bad type, or for no key, a repeated one or more than `MAX_SIGNATURES`.
    """
    if not 0 < len({key.public for key in keys}) == len(keys) <= MAX_SIGNATURES:
        raise OutOfRange(f"An envelope is signed with 1 to {MAX_SIGNATURES} different keys.")
    signed = pae(payload_type, body)
    made = tuple(Signature(key.public.key_id, key.sign_raw(signed)) for key in keys)
    return Signed(payload_type, body, made)


def read(data: bytes, *, limit: int) -> Signed:
    """Parse an envelope as `Signed.text` writes it; nothing is verified yet.

    DSSE also allows other spellings (white space, URL-safe base64); evidence has one. Raises
    NotCanonical for any other, and for more than `limit` bytes.
    """
    found = parse(data, limit=limit)
    if not isinstance(found, dict) or set(found) != _MEMBERS:
        raise NotCanonical("An envelope holds exactly payload, payloadType and signatures.")
    kind, signatures = found["payloadType"], found["signatures"]
    if not isinstance(kind, str) or not isinstance(signatures, list):
        raise NotCanonical("An envelope's members have fixed types.")
    if len(signatures) > MAX_SIGNATURES:
        raise NotCanonical(f"An envelope has at most {MAX_SIGNATURES} signatures.")
    try:
        pae(kind, b"")
    except OutOfRange:
        raise NotCanonical("The payload type is not printable ASCII.") from None
    return Signed(kind, _decode(found["payload"]), tuple(_signature(s) for s in signatures))


def _signature(found: Any) -> Signature:
    if not isinstance(found, dict) or set(found) != {"keyid", "sig"}:
        raise NotCanonical("A signature holds exactly keyid and sig.")
    raw = _decode(found["sig"])
    if not isinstance(found["keyid"], str) or len(raw) != SIGNATURE_BYTES:
        raise NotCanonical("A signature's members have fixed types and lengths.")
    return Signature(found["keyid"], raw)


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _decode(text: object) -> bytes:
    if not isinstance(text, str):
        raise NotCanonical("Base64 belongs into a string.")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NotCanonical from None
    if _encode(raw) != text:
        raise NotCanonical
    return raw
