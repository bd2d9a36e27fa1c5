"""Envelopes: a small signed public header and opaque bytes. What transports carry.

Layout: ``SFGL`` | version (1 byte) | header length (u16) | header | signature (64) | body length
(u32) | body, all big-endian. The header is canonical JSON (RFC 8785) of strings of fixed width, so
an envelope's size depends on the plan item and the names of the parties, never on the data (O8).
The signature is over header and version, so that none is read as one of another version.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from crypto.errors import CryptoError
from crypto.signing.canonical import canonical, parse
from protocols.errors import BadEnvelope, OtherEnvelope
from protocols.versions import ENVELOPE

MAGIC = ENVELOPE.head
SIGNED = f"envelope/{ENVELOPE.version}"  # domain of every header's signature
SIGNATURE_BYTES = 64
HEADER_LIMIT = 4096  # bytes; a header of ours is below 1,400
BODY_LIMIT = 1 << 30  # bytes; the plan's exact size is checked as soon as the header is read
NONE = "0" * 64  # stands where a digest does not apply
_WIDTH = {
    "run": 32,
    "plan": 64,
    "policy": 64,
    "round": 8,
    "exchange": 8,
    "attempt": 8,
    "cohort": 64,
    "schema": 64,
    "key": 16,
    "given": 64,
    "body": 64,
    "head": 64,
    "nonce": 32,
    "pairs": 64,
}
_COUNTERS = ("round", "exchange", "attempt")


@dataclass(frozen=True)
class Header:
    """What the sender signs.

    Attributes:
        run, plan, policy: digests that bind the envelope to one run.
        round, exchange, attempt: where in the run; `exchange` counts Asks and never repeats.
        cohort: digest of the exact cohort.
        item: the plan item.
        schema: digest of the item's field schema.
        sender, recipient: party names (recipient ``roster``: everyone).
        key: id of the key that protects the body.
        given: digest of what the sender was given (equal for all clients, else nothing is opened).
        body: SHA-256 of the body.
        head: head of the sender's ledger before this release.
        nonce: 16 random bytes, so that a digest of the envelope tells nothing about its content.
        pairs: digest of what the masks of a sum rest on: epoch, who agreed on keys, slot.
    """

    run: str
    plan: str
    policy: str
    round: int
    exchange: int
    attempt: int
    cohort: str
    item: str
    schema: str
    sender: str
    recipient: str
    key: str
    given: str
    body: str
    head: str
    nonce: str
    pairs: str = NONE

    def encode(self, *, without_body: bool = False) -> bytes:
        """Return canonical bytes; `without_body` gives the HPKE ``info`` of a sealed body."""
        whole: bytes | None = self.__dict__.get("_encoded")
        if whole is None:
            whole = self._encode({})
            object.__setattr__(self, "_encoded", whole)  # a header never changes
        if not without_body:
            return whole
        if whole[_BODY_FROM : _BODY_TO + 1] != self.body.encode() + b'"':  # it holds an escape
            return self._encode({"body": ""})
        return whole[:_BODY_FROM] + whole[_BODY_TO:]

    def of_body(self, digest: str) -> Header:
        """Return this header with another body's digest (hex)."""
        made, bare = object.__new__(Header), self.encode(without_body=True)
        whole = digest.encode().join((bare[:_BODY_FROM], bare[_BODY_FROM:]))
        made.__dict__.update(self.__dict__, body=digest, _encoded=whole)
        return made

    def _encode(self, instead: Mapping[str, str]) -> bytes:
        facts = self.__dict__
        record = {name: facts[name] for name in _FIELDS}
        for name in _COUNTERS:
            record[name] = f"{facts[name]:08d}"
        record.update(instead)
        return canonical(record)

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """Parse strictly: exactly these keys, fixed widths; raises BadEnvelope."""
        if (found := _usual(data)) is not None:
            return cls._of_texts(data, found)
        try:
            record = parse(data, limit=HEADER_LIMIT)
        except CryptoError as error:
            raise BadEnvelope("A header is not canonical.") from error
        if not isinstance(record, dict) or set(record) != set(_FIELDS):
            raise BadEnvelope("A header does not hold exactly the known fields.")
        for name, value in record.items():
            if not isinstance(value, str) or len(value) > _LONGEST:
                raise BadEnvelope("A header field is not a short text.")
            if name in _WIDTH and (len(value) != _WIDTH[name] or not value.isascii()):
                raise BadEnvelope("A header field has the wrong width.")
        counters = {}
        for name in _COUNTERS:
            if not record[name].isdecimal():
                raise BadEnvelope("A header counter is not a number.")
            counters[name] = int(record[name])
        return cls(**{**record, **counters})

    @classmethod
    def _of_texts(cls, data: bytes, texts: Sequence[str]) -> Header:
        """Return the header of these fields, which hold nothing that JSON escapes."""
        made = object.__new__(cls)
        facts = made.__dict__
        facts.update(zip(_SORTED, texts, strict=True))
        for name in _COUNTERS:
            facts[name] = int(facts[name])
        facts["_encoded"] = data
        return made

    def siblings(self) -> Callable[[str, str, str, str], bytes]:
        """Return what encodes headers that differ in sender, body, head and nonce only.

        The same bytes as `encode`, forty times as fast, for who looks at many headers of one sum.
        Sender, digests and nonce are taken to hold nothing that JSON escapes.

        Raises:
            BadEnvelope: another field holds a mark that stands for one of these here.
        """
        marks = {name: f"@{name}@" for name in _VARIED}
        text = self._encode(marks).decode().replace("%", "%%")
        for mark in marks.values():
            if text.count(mark) != 1:
                raise BadEnvelope("A header field holds what only its own place may hold.")
            text = text.replace(mark, "%s")

        def encoded(sender: str, body: str, head: str, nonce: str) -> bytes:
            return (text % (body, head, nonce, sender)).encode()

        return encoded


_FIELDS = tuple(field.name for field in fields(Header))
_SORTED = tuple(sorted(_FIELDS))  # as canonical JSON writes them
_VARIED = ("body", "head", "nonce", "sender")  # in canonical order
_BODY_FROM = len('{"attempt":"00000000","body":"')
_BODY_TO = _BODY_FROM + _WIDTH["body"]


_NAMES = list(_SORTED)
_MARKS = ["{", *[":", ","] * (len(_SORTED) - 1), ":", "}"]  # of a header, cut at its quotes
_PLAIN = bytes(set(range(0x20, 0x7F)) - set(b"\\"))  # ASCII that stands for itself
_LENGTHS = [_WIDTH.get(name) for name in _SORTED]
_LONGEST = 120  # characters of a field without a width
_NUMBERS = [_SORTED.index(name) for name in _COUNTERS]


def _usual(data: bytes) -> list[str] | None:
    """Return the fields, sorted, of a header without escapes: what every party of ours sends.

    None for any other, which may be a header all the same.
    """
    if data.translate(None, _PLAIN):
        return None
    parts = data.decode().split('"')
    if parts[::2] != _MARKS or parts[1::4] != _NAMES:
        return None
    found = parts[3::4]
    for text, length in zip(found, _LENGTHS, strict=True):
        if len(text) != length and (length is not None or len(text) > _LONGEST):
            return None
    return found if all(found[place].isdecimal() for place in _NUMBERS) else None


@dataclass(frozen=True, repr=False)
class Envelope:
    """Signed header and opaque body. Made by the gateway only, or decoded from bytes."""

    header: Header
    signature: bytes
    body: bytes | memoryview

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        header = self.header.encode()
        return b"".join(
            (
                MAGIC,
                struct.pack(">H", len(header)),
                header,
                self.signature,
                struct.pack(">I", len(self.body)),
                self.body,
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> Envelope:
        """Parse strictly; sizes first, then the header, then the body's digest.

        Raises:
            OtherEnvelope: it is of another version.
            BadEnvelope: anything is not exactly as written by :meth:`encode`.
        """
        view = memoryview(data)
        start = len(MAGIC) + 2
        if not ENVELOPE.begins(view, OtherEnvelope) or len(data) < start:
            raise BadEnvelope("These bytes are not an envelope.")
        (length,) = struct.unpack(">H", view[len(MAGIC) : start])
        end = start + length
        rest = end + SIGNATURE_BYTES
        if length > HEADER_LIMIT or len(data) < rest + 4:
            raise BadEnvelope("An envelope is cut short, or its header is too long.")
        (size,) = struct.unpack(">I", view[rest : rest + 4])
        if size > BODY_LIMIT or len(data) != rest + 4 + size:
            raise BadEnvelope("An envelope's body does not have the length it states.")
        header = Header.decode(bytes(view[start:end]))
        body = view[rest + 4 :].toreadonly()  # not copied: uploads are megabytes
        if not hmac.compare_digest(header.body, hashlib.sha256(body).hexdigest()):
            raise BadEnvelope("An envelope's body does not match its signed digest.")
        return cls(header, bytes(view[end:rest]), body)

    @cached_property
    def committed(self) -> str:
        """See `commitment`: the ledger and the client's receipt both name it."""
        return hashlib.sha256(b"secure-fgl/envelope\0" + signed_header(self)).hexdigest()

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return envelope_bytes(len(self.header.encode()), len(self.body))

    def __repr__(self) -> str:
        """Return the route only."""
        return f"<Envelope {self.header.item} {self.header.sender}->{self.header.recipient}>"


def envelope_bytes(header: int, body: int) -> int:
    """Return the size of an envelope from the sizes of its header and body."""
    return len(MAGIC) + 2 + header + SIGNATURE_BYTES + 4 + body


def signed_header(envelope: Envelope) -> bytes:
    """Return header and signature alone: what a client signs, without the body."""
    header = envelope.header.encode()
    return struct.pack(">H", len(header)) + header + envelope.signature


def beginning(envelope: Envelope) -> bytes:
    """Return an envelope's bytes up to its body: they hold the body's signed digest."""
    return MAGIC + signed_header(envelope) + struct.pack(">I", len(envelope.body))


def is_again(data: bytes, before: bytes) -> bool:
    """Tell whether these are the very bytes of the envelope that began like `before`.

    Bodies are megabytes: of an envelope that begins otherwise nothing is hashed for this.

    Raises:
        BadEnvelope: the beginning is the same, and the body is not.
    """
    if not before or not data.startswith(before):
        return False
    Envelope.decode(data)
    return True


def read_signed_header(data: bytes) -> tuple[Header, bytes, int]:
    """Parse one :func:`signed_header` at the start of `data`.

    Returns:
        The header, its signature and the number of bytes read.

    Raises:
        BadEnvelope: cut short or malformed.
    """
    if len(data) < 2:
        raise BadEnvelope("A signed header is cut short.")
    (length,) = struct.unpack(">H", data[:2])
    end = 2 + length + SIGNATURE_BYTES
    if length > HEADER_LIMIT or len(data) < end:
        raise BadEnvelope("A signed header is cut short.")
    return Header.decode(data[2 : 2 + length]), data[2 + length : end], end


def header_bytes(item: str, sender: str, recipient: str) -> int:
    """Return the encoded size of a header on this route."""
    texts = {name: "0" * width for name, width in _WIDTH.items() if name not in _COUNTERS}
    header = Header(
        **{**texts, "item": item, "sender": sender, "recipient": recipient},
        round=0,
        exchange=0,
        attempt=0,
    )
    return len(header.encode())


def route(header: Header) -> dict[str, object]:
    """Return the facts of a header that stand in ledger entries."""
    return {
        "attempt": header.attempt,
        "cohort": header.cohort,
        "exchange": header.exchange,
        "given": header.given,
        "item": header.item,
        "key": header.key,
        "plan": header.plan,
        "policy": header.policy,
        "recipient": header.recipient,
        "round": header.round,
        "sender": header.sender,
    }


def commitment(envelope: Envelope) -> str:
    """Return the ledger's commitment to an envelope's bytes.

    SHA-256 over the signed header, which holds the body's SHA-256 and a random nonce: it binds
    every byte, and nobody without the envelope can guess its content from it.
    """
    return envelope.committed
