"""Envelopes: a small signed public header and opaque bytes. What transports carry.

Layout: ``SFGL`` | version (1 byte) | header length (u16) | header | signature (64) | body length
(u32) | body, all big-endian. The header (`protocols.wire.header`) is of fixed layout, so an
envelope's size depends on the plan item and the names of the parties, never on the data (O8).
The signature is over header and version, so that none is read as one of another version.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

from protocols.errors import BadEnvelope, OtherEnvelope
from protocols.versions import ENVELOPE
from protocols.wire.header import HEADER_LIMIT, WIDTH, Header

MAGIC = ENVELOPE.head
SIGNED = f"envelope/{ENVELOPE.version}"  # domain of every header's signature
SIGNATURE_BYTES = 64
BODY_LIMIT = 1 << 30  # bytes; the plan's exact size is checked as soon as the header is read


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

    @property
    def committed(self) -> str:
        """See `commitment`: the ledger and the client's receipt both name it."""
        found: str | None = self.__dict__.get("_committed")  # `cached_property` takes a lock
        if found is None:
            found = hashlib.sha256(b"secure-fgl/envelope\0" + signed_header(self)).hexdigest()
            object.__setattr__(self, "_committed", found)
        return found

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
    digests = {name: "0" * width for name, width in WIDTH.items()}
    names = {"item": item, "sender": sender, "recipient": recipient}
    return len(Header(**digests, **names, round=0, exchange=0, attempt=0).encode())


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
