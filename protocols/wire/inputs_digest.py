"""What a cohort is given alike, and its digest: it stands in every answer's header (O8)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from protocols.disclosures.names import Disclosure
from protocols.messages import Message, names
from protocols.wire.codec import encode

__all__ = ["SHARED", "bytes_digest", "given_digest"]

SHARED = (Disclosure.RELEASED, Disclosure.PUBLIC)
"""Disclosures that every member of a cohort is given alike, so that they can be compared (O8)."""


def given_digest(messages: Sequence[Message], dims: Mapping[str, int]) -> str:
    """Return the digest of what a cohort was given (equal for every client, O8)."""
    return bytes_digest([(type(message), encode([message], dims)) for message in messages])


def bytes_digest(given: Sequence[tuple[type[Message], bytes | memoryview]]) -> str:
    """Return the `given_digest` of messages of these types and bytes."""
    kinds = names(tuple(kind for kind, _ in given)).encode()
    digest = hashlib.sha256(b"secure-fgl/given\0" + kinds + b"\0")
    for _, data in given:
        digest.update(data)  # models are megabytes: not joined first
    return digest.hexdigest()
