"""The header of an envelope: what its sender signs, and what stands in clear.

Layout, big-endian and without gaps::

    body 32 | head 32 | nonce 16                       what differs between the uploads of one sum
    run 16 | plan 32 | policy 32 | cohort 32 | schema 32 | given 32 | pairs 32 | key 8
    round u32 | exchange u32 | attempt u32
    length u8, item | length u8, recipient | length u8, sender       printable ASCII, 1 to 120 bytes

Digests stand as bytes and are lower-case hex in :class:`Header`. Every place holds one fact, every
value of it is another fact, and nothing follows the sender: no two encodings are of one header.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise
from operator import attrgetter

from protocols.errors import BadEnvelope, OtherEnvelope
from protocols.versions import ENVELOPE

NONE = "0" * 64  # stands where a digest does not apply
NO_KEY = "0" * 16  # stands where nothing protects the body
WIDTH = {
    "body": 64,
    "head": 64,
    "nonce": 32,
    "run": 32,
    "plan": 64,
    "policy": 64,
    "cohort": 64,
    "schema": 64,
    "given": 64,
    "pairs": 64,
    "key": 16,
}
"""Hex digits of every digest, in the order in which they are written."""
COUNTERS = ("round", "exchange", "attempt")
NAMES = ("item", "recipient", "sender")
LONGEST_NAME = 120  # bytes
OWN_BYTES = 80
"""Of body, head and nonce: what differs between the headers of one sum, beside the sender."""

_COUNTED = struct.Struct(">III")
_BODY = WIDTH["body"] // 2
_FROM = sum(WIDTH.values()) // 2  # where the counters begin
_NAMED = _FROM + _COUNTED.size
_WIDTHS = tuple(WIDTH.values())
_CUTS = [slice(*ends) for ends in pairwise(accumulate(_WIDTHS, initial=0))]
_DIGESTS, _COUNTS, _TEXTS = (attrgetter(*names) for names in (WIDTH, COUNTERS, NAMES))
_PRINTABLE = bytes(range(0x21, 0x7F))

HEADER_LIMIT = _NAMED + len(NAMES) * (1 + LONGEST_NAME)  # bytes
_SHORTEST = _NAMED + 2 * len(NAMES)


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
        """Return the only encoding; `without_body` gives the HPKE ``info`` of a sealed body.

        Raises:
            BadEnvelope: a fact has no place in a header: not lower-case hex of its width, a number
                that is none or beyond 32 bits, a name that is too long or not printable ASCII.
        """
        whole: bytes | None = self.__dict__.get("_encoded")
        if whole is None:
            whole = self._encode()
            object.__setattr__(self, "_encoded", whole)  # a header never changes
        return whole[_BODY:] if without_body else whole

    def of_body(self, digest: bytes) -> Header:
        """Return this header with another body's digest (32 bytes)."""
        if len(digest) != _BODY:
            raise BadEnvelope("A body's digest has exactly 32 bytes.")
        made = object.__new__(Header)
        whole = digest + self.encode(without_body=True)
        made.__dict__.update(self.__dict__, body=digest.hex(), _encoded=whole)
        return made

    def _encode(self) -> bytes:
        digests, texts = _DIGESTS(self), _TEXTS(self)
        try:
            joined = "".join(digests)
            raw, names = bytes.fromhex(joined), [text.encode("ascii") for text in texts]
            counted = _COUNTED.pack(*_COUNTS(self))
        except (AttributeError, TypeError, ValueError, struct.error):
            raise BadEnvelope("A header cannot hold one of its facts.") from None
        # Capitals and spaces pass `fromhex`: written again they would be other facts.
        if tuple(map(len, digests)) != _WIDTHS or raw.hex() != joined:
            raise BadEnvelope("A digest in a header is not lower-case hex of its width.")
        if not all(map(_is_name, names)):
            raise BadEnvelope("A name in a header is empty, too long or not printable ASCII.")
        return b"".join((raw, counted, *[bytes((len(name),)) + name for name in names]))

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """Parse strictly; raises BadEnvelope for whatever `encode` does not write."""
        if not _SHORTEST <= len(data) <= HEADER_LIMIT:
            raise BadEnvelope("A header is too short or too long.")
        made, text = object.__new__(cls), data[:_FROM].hex()
        facts = made.__dict__
        facts.update(zip(WIDTH, [text[cut] for cut in _CUTS], strict=True))
        facts["round"], facts["exchange"], facts["attempt"] = _COUNTED.unpack_from(data, _FROM)
        start = _NAMED
        for name in NAMES:
            end = start + 1 + data[start] if start < len(data) else start
            found = data[start + 1 : end]
            if end > len(data) or not _is_name(found):
                raise BadEnvelope("A name in a header is cut short, too long or no printable text.")
            facts[name], start = found.decode("ascii"), end
        if start != len(data):
            raise BadEnvelope("There are bytes behind a header's last field.")
        facts["_encoded"] = data
        return made

    def siblings(self) -> Callable[[str, bytes], bytes]:
        """Return what encodes headers that differ in sender, body, head and nonce only.

        It takes the sender, and the `OWN_BYTES` bytes of its body's digest, head and nonce.
        """
        common = self.encode()[OWN_BYTES : -1 - len(self.sender)]

        def encoded(sender: str, own: bytes) -> bytes:
            return b"".join((own, common, bytes((len(sender),)), sender.encode("ascii")))

        return encoded


def _is_name(text: bytes) -> bool:
    return 0 < len(text) <= LONGEST_NAME and not text.translate(None, _PRINTABLE)


if {field.name for field in fields(Header)} != {*WIDTH, *COUNTERS, *NAMES}:
    raise TypeError("A fact of a header has no place in its encoding.")


# --- Where in the run a message belongs ---


@dataclass(frozen=True)
class Where:
    """Where in the run a message belongs.

    Attributes:
        round: 0 before the first and after the last round.
        exchange: number of the Ask; never repeats in a run.
        members: the exact cohort; empty for messages outside any cohort.
        given: digest of what the cohort was given.
        attempt: always 1: a round that cannot be opened is skipped, not repeated (O5).
        slot: how many sums of the same kind came before in the round.
    """

    round: int = 0
    exchange: int = 0
    members: tuple[str, ...] = ()
    given: str = NONE
    attempt: int = 1
    slot: int = 0


# --- Envelopes: a small signed public header and opaque bytes. What transports carry ---
#
# Layout: ``SFGL`` | version (1 byte) | header length (u16) | header | signature (64) | body length
# (u32) | body, all big-endian. The header (`protocols.wire.envelope`) is of fixed layout, so an
# envelope's size depends on the plan item and the names of the parties, never on the data (O8).
# The signature is over header and version, so that none is read as one of another version.

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
