"""What a cohort is given alike, and its digest: it stands in every answer's header (O8).

Of a model there is one of its weights alone, by which runs are compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from protocols.disclosures.names import Disclosure
from protocols.messages import Array, Message, names
from protocols.wire.codec import encode

__all__ = ["SHARED", "bytes_digest", "given_digest", "weights_digest", "weights_of"]

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


def weights_of(model: Message) -> dict[str, Array]:
    """Return the real fields of a model by name."""
    real = [field.name for field in model.fields if field.wire in ("f4", "f8")]
    return {name: np.asarray(getattr(model, name)) for name in real}


def weights_digest(arrays: Mapping[str, Array]) -> str:
    """Return SHA-256 (hex) over sorted names, dtypes, shapes and little-endian bytes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        little = array.astype(array.dtype.newbyteorder("<"))
        digest.update(f"{name}|{little.dtype.str}|{little.shape}|".encode())
        digest.update(little.tobytes())
    return digest.hexdigest()
