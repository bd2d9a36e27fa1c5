"""Canonical bytes (RFC 8785), Ed25519 signatures (RFC 8032) and signed statements (DSSE v1)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring
from operator import itemgetter
from sys import intern
from typing import Any, NoReturn

from cryptography.exceptions import InvalidSignature as _Rejected
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from crypto.errors import InvalidKey, InvalidSignature, NotCanonical, OutOfRange
from crypto.samplers import Mute

# --- One value, one byte string: the subset of RFC 8785 (JSON Canonicalization Scheme) that we
# sign ---
#
# Accepted: dict with str keys, list, str, int with |i| < 2^53, bool and None. Floats have no place
# in anything that is signed here, so they are refused rather than formatted (RFC 8785 section
# 3.2.2.3 is the part that implementations get wrong). Object members are sorted by UTF-16 code
# units (section 3.2.3).

MAX_DEPTH = 16  # our deepest header nests 5 levels
MAX_INTEGER = 2**53 - 1  # RFC 7493 section 2.2: exact in every JSON reader

_LONGEST_INTEGER = len(str(-MAX_INTEGER))
_PLAIN = bytes(set(range(0x20, 0x7F)) - set(b'"\\'))  # what stands for itself
_CONSTANTS = {None: "null", True: "true", False: "false"}
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical(value: object) -> bytes:
    """Return the only accepted UTF-8 encoding of `value`.

    Raises NotCanonical for a type outside the subset, an integer of 2^53 or more, a lone surrogate,
    or more than `MAX_DEPTH` levels.
    """
    text = _text(value, 0)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise NotCanonical("A string holds a lone surrogate, which UTF-8 cannot carry.") from None


def _text(value: object, depth: int) -> str:
    if isinstance(value, str):
        # Python escapes exactly what RFC 8785 section 3.2.2.2 asks for when ASCII is not forced.
        return encode_basestring(value)
    if type(value) is int:
        if abs(value) > MAX_INTEGER:
            raise NotCanonical("An integer is 2^53 or more; carry it as a string or in limbs.")
        return str(value)
    if value is None or value is True or value is False:
        return _CONSTANTS[value]
    if isinstance(value, list):
        return f"[{','.join(_texts(value, depth + 1))}]"
    if isinstance(value, dict):
        return _object(value, depth + 1)
    raise NotCanonical(f"A value of type {type(value).__name__} has no canonical encoding.")


def _texts(values: Sequence[object], depth: int) -> list[str]:
    if values and depth > MAX_DEPTH:
        raise NotCanonical(f"The value nests deeper than {MAX_DEPTH} levels.")
    if _is_clean("".join([value for value in values if type(value) is str])):
        return [f'"{v}"' if type(v) is str else _text(v, depth) for v in values]
    return [_text(value, depth) for value in values]


def _is_clean(joined: str) -> bool:
    # Digests and names hold nothing to escape: to look at all at once takes a tenth of the time.
    return joined.isascii() and not joined.encode().translate(None, _PLAIN)


def _object(value: dict[Any, Any], depth: int) -> str:
    pick, texts, others, quoted, bare = _shape(tuple(value), tuple(map(type, value.values())))
    values = pick(value)
    if depth > MAX_DEPTH or not _is_clean("".join(texts(values))):
        return _between(bare, _texts(values, depth))
    if others:
        ready = list(values)
        for place in others:
            found = ready[place]
            whole = type(found) is int and -MAX_INTEGER <= found <= MAX_INTEGER
            ready[place] = str(found) if whole else _text(found, depth)
        return _between(quoted, ready)
    return _between(quoted, values)


def _between(around: Sequence[str], values: Sequence[str]) -> str:
    """Return the values with the text around them; an object of many costs a third of `%`."""
    parts = [*around, *values]
    parts[::2], parts[1::2] = around, values
    return "".join(parts)


Pick = Callable[[Any], tuple[Any, ...]]


@lru_cache(maxsize=256)  # headers and ledger entries are of few shapes
def _shape(
    names: tuple[object, ...], kinds: tuple[type, ...]
) -> tuple[Pick, Pick, tuple[int, ...], list[str], list[str]]:
    """Return what objects of these keys and types of values have in common.

    Returns:
        What picks the values in order, what picks the texts among them, where the others stand, and
        the text around the values: with the quotes of texts, and without.
    """
    ordered = [name for name in names if isinstance(name, str)]
    if len(ordered) != len(names):
        raise NotCanonical("An object has a key that is not a string.")
    ordered.sort(key=_utf16)
    kind_of = dict(zip(names, kinds, strict=True))
    quotes = ['"' if kind_of[name] is str else "" for name in ordered]
    texts = [place for place, quote in enumerate(quotes) if quote]
    others = tuple(place for place, quote in enumerate(quotes) if not quote)
    return _picker(ordered), _picker(texts), others, _around(ordered, quotes), _around(ordered)


def _around(names: Sequence[str], quotes: Sequence[str] | None = None) -> list[str]:
    """Return an object's text before, between and behind its values."""
    found, before = [], "{"
    for name, quote in zip(names, quotes or [""] * len(names), strict=True):
        found.append(f"{before}{encode_basestring(name)}:{quote}")
        before = f"{quote},"
    return [*found, f"{before[:-1]}}}" if found else "{}"]


def _picker(places: Sequence[Any]) -> Pick:
    """Return what picks these places of a value as a tuple, which `itemgetter` does from two on."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda value: tuple([value[place] for place in places])


def _utf16(key: object) -> bytes:
    return str(key).encode("utf-16-be", "surrogatepass")


def parse(data: bytes, *, limit: int) -> Any:
    """Return the value whose canonical encoding is `data`, or raise NotCanonical.

    The size is checked before anything is parsed. Duplicate keys, floats, NaN, long integers,
    invalid UTF-8 and deep nesting are refused, and the result is encoded again and compared, so no
    second spelling of a signed value can pass.
    """
    if len(data) > limit:
        raise NotCanonical(f"The encoding is longer than the limit of {limit} bytes.")
    try:
        value = json.loads(
            bytes(data).decode("utf-8", "strict"),
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_no_float,
            parse_constant=_no_float,
        )
    except (ValueError, RecursionError):
        # UnicodeDecodeError and JSONDecodeError are ValueErrors and quote their input: drop them.
        raise NotCanonical from None
    if _again(value, data) != data:
        raise NotCanonical
    return value


def _again(value: object, data: bytes) -> bytes:
    """Return the canonical encoding of what `data` was parsed into.

    Ledgers are long: where ASCII makes Python's sorting the right one and too few brackets are
    there to nest deeper than `MAX_DEPTH`, the encoder in C writes the same bytes six times faster.
    """
    if data.isascii() and data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return _ENCODER.encode(value).encode("utf-8", "surrogatepass")
    return canonical(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Ledgers of a run repeat names, digests and parties: held once they take 2/5 of the memory.
    members = {intern(name): _shared(value) for name, value in pairs}
    if len(members) != len(pairs):
        raise NotCanonical("An object repeats a key.")
    return members


def _shared(value: Any) -> Any:
    return intern(value) if type(value) is str else value


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER or abs(int(digits)) > MAX_INTEGER:
        raise NotCanonical("An integer is 2^53 or more.")
    return int(digits)


def _no_float(_: str) -> NoReturn:
    raise NotCanonical("Floats have no canonical encoding here; send an integer and its scale.")


# --- Ed25519 signatures (RFC 8032) that say what kind of thing they sign ---
#
# A signature over b"secure-fgl/" + domain + b"\0" + message cannot be replayed as a signature of
# another kind: domains hold no NUL byte, so the pair (domain, message) is read back uniquely.

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

        For formats that others define (C2SP signed notes in `crypto.merkle`) and for
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
    def generate(cls) -> SigningKey:
        """Make a new key from the operating system's entropy."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> SigningKey:
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


# --- Signed statements in the envelope that supply-chain tools share (DSSE v1) ---
#
# A signature covers PAE(type, body) = "DSSEv1" SP len(type) SP type SP len(body) SP body, so that a
# body signed as one type cannot be read as another, and nothing has to be canonical to be verified.
# The JSON envelope carries type and body (base64) beside the signatures; ``keyid`` is a hint by
# which a key is looked up and decides nothing.
#
#     https://github.com/secure-systems-lab/dsse  protocol.md and envelope.md, version 1.0

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
    `crypto.signing` begins with, so none can be read as another. Raises OutOfRange for a
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
