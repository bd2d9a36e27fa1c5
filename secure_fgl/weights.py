"""The digest by which two runs' models are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from protocols.messages import Array


def weights_digest(arrays: Mapping[str, Array]) -> str:
    """Return SHA-256 (hex) over sorted names, dtypes, shapes and little-endian bytes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        little = array.astype(array.dtype.newbyteorder("<"))
        digest.update(f"{name}|{little.dtype.str}|{little.shape}|".encode())
        digest.update(little.tobytes())
    return digest.hexdigest()
