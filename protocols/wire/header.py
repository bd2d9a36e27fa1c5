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

import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise
from operator import attrgetter

from protocols.errors import BadEnvelope

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
