"""What a party is asked, and the codes with which its site replies. The broker sees both."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

TASK = "envelopes"
"""The request that carries envelopes."""
END = "end"
"""The request that says that the run is over, signed by the aggregator (`Charter.end`): a site
gives up its kept state then, and nobody else, the server's operator included, can have it do so."""


class Code(StrEnum):
    """How a site replied."""

    DONE = "done"
    """It answered."""
    UNREADABLE = "unreadable"
    """The request was not for it, not authentic, late, or a repetition; it changed nothing."""
    FAILED = "failed"
    """It could not answer; the reason stays at the site."""
    BUSY = "busy"
    """Its process still works on another request."""
    AWAY = "away"
    """Its process or its carrier is gone and was not stopped: it comes back."""
    LEFT = "left"
    """Its process ended in order, or never started."""
    SILENT = "silent"
    """Nothing came from the site."""


@dataclass(frozen=True)
class SiteReply:
    """The reply of one site: a code, and envelopes with `Code.DONE` alone."""

    code: Code
    envelopes: Sequence[bytes] = ()


# --- Requests and replies as bytes, and as the parts in which they cross the broker ---
#
# A message is a head (JSON) and envelopes. One of up to `PART` bytes crosses in one part, a longer
# one in numbered parts under one digest. A receiver knows size, number and limit before it keeps a
# byte, takes parts in their order only, and holds one unfinished message of a sender at a time.

PART = 1 << 20
"""Bytes of a message in one part; the server's `max_payload` is this and the part's head."""
MOST = 1 << 31
"""Bytes of any message; a charter's own limit is far lower (`config.message_limit`)."""
_ENVELOPES = 1 << 17
_HEAD = 1 << 20  # bytes of a message's JSON


class Malformed(ValueError):
    """These bytes are no message, or no part of the one that is expected."""


class Kind(IntEnum):
    """What a part asks for, or says. The first three go to a site, the others come from it."""

    PUT = 1
    """Here is a part of a request."""
    WAIT = 2
    """Reply when the request is done, or when the hold is over."""
    GET = 3
    """Send this part of the reply."""
    MORE = 4
    """The part arrived; send the next one."""
    REPLY = 5
    """Here is a part of the reply."""
    CODE = 6
    """There is no reply, and why: see `carrier`."""


_FORM = struct.Struct(">4sB16sIIQI32s")
_MAGIC = b"FGL1"
HEAD_BYTES = _FORM.size


@dataclass(frozen=True)
class Part:
    """One part.

    Attributes:
        kind: see `Kind`.
        name: of the request, 16 random bytes.
        index, count: which part of how many.
        size, digest: of the whole message.
        hold: milliseconds for which a site may hold its reply back.
        data: bytes of the message.
    """

    kind: Kind
    name: bytes
    index: int = 0
    count: int = 1
    size: int = 0
    digest: bytes = bytes(32)
    hold: int = 0
    data: bytes | memoryview = b""

    def encode(self) -> bytes:
        """Return the bytes that are published."""
        head = _FORM.pack(
            _MAGIC, self.kind, self.name, self.index, self.count, self.size, self.hold, self.digest
        )
        return b"".join((head, self.data))

    @classmethod
    def decode(cls, data: bytes) -> Part:
        """Read a part; raises Malformed."""
        if not _FORM.size <= len(data) <= _FORM.size + PART:
            raise Malformed("a part has another length")
        magic, kind, name, index, count, size, hold, digest = _FORM.unpack_from(data)
        if magic != _MAGIC or kind not in Kind.__members__.values():
            raise Malformed("not a part of ours")
        body = memoryview(data)[_FORM.size :]
        return cls(Kind(kind), name, index, count, size, digest, hold, body)


def split(kind: Kind, name: bytes, message: bytes, hold: int = 0) -> list[Part]:
    """Return a message as its parts, one at least."""
    digest, size, view = hashlib.sha256(message).digest(), len(message), memoryview(message)
    count = max(1, -(-size // PART))
    return [
        Part(kind, name, i, count, size, digest, hold, view[i * PART : (i + 1) * PART])
        for i in range(count)
    ]


class Assembly:
    """Puts one message together.

    Args:
        first: its first part, which says all of its size.
        limit: bytes that are taken at most.

    Raises:
        Malformed: it begins in the middle, is too large, or its numbers contradict each other.
    """

    def __init__(self, first: Part, limit: int) -> None:
        if first.index != 0 or first.size > limit or first.count != max(1, -(-first.size // PART)):
            raise Malformed("a message is too large, or its numbers contradict each other")
        self.first, self.next, self._data = first, 0, bytearray()

    def add(self, part: Part) -> bytes | None:
        """Add the next part; return the message once it is whole.

        Raises:
            Malformed: another part was due, it has another length, or the digest is another one.
        """
        whole = self.first
        due = min(PART, whole.size - self.next * PART)
        if (part.name, part.index, part.count, part.size, part.digest, len(part.data)) != (
            whole.name, self.next, whole.count, whole.size, whole.digest, due
        ):  # fmt: skip
            raise Malformed("another part was due")
        self.next += 1
        if whole.count == 1:
            message = bytes(part.data)
        else:
            self._data += part.data
            if self.next < whole.count:
                return None
            message = bytes(self._data)
        if hashlib.sha256(message).digest() != whole.digest:
            raise Malformed("a message has another digest than its parts say")
        return message


def encode(head: Mapping[str, Any], envelopes: Sequence[bytes] = ()) -> bytes:
    """Return a message: its head, and envelopes."""
    sizes = [len(envelope) for envelope in envelopes]
    text = json.dumps({**head, "sizes": sizes}).encode()
    return b"".join((struct.pack(">I", len(text)), text, *envelopes))


def decode(message: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Read a message; raises Malformed."""
    try:
        (size,) = struct.unpack_from(">I", message)
        if size > _HEAD:
            raise ValueError
        head = json.loads(message[4 : 4 + size])
        sizes = head.pop("sizes")
        if not isinstance(sizes, list) or len(sizes) > _ENVELOPES:
            raise ValueError
        if not all(type(n) is int and n >= 0 for n in sizes):
            raise ValueError
        if 4 + size + sum(sizes) != len(message):
            raise ValueError
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError, struct.error) as error:
        raise Malformed("a message holds no list of envelopes") from error
    envelopes, at = [], 4 + size
    for length in sizes:
        envelopes.append(message[at : at + length])
        at += length
    return head, envelopes
