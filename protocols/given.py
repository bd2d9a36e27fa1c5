"""What a cohort was given, in one digest, so that parties can compare it (O8)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from protocols.codec import encode
from protocols.disclosures import Disclosure
from protocols.messages import Message, names

__all__ = ["SHARED", "given_digest"]

SHARED = (Disclosure.RELEASED, Disclosure.PUBLIC)
"""Disclosures that every member of a cohort is given alike, so that they can be compared (O8)."""


def given_digest(messages: Sequence[Message], dims: Mapping[str, int]) -> str:
    """Return the digest of what a cohort was given (equal for every client, O8)."""
    kinds = names(tuple(type(message) for message in messages))
    content = kinds.encode() + b"\0" + encode(messages, dims)
    return hashlib.sha256(b"secure-fgl/given\0" + content).hexdigest()
