"""What each party signs when it agrees to a charter; one place for who signs and who verifies.

A charter is plain data (`secure_fgl.transports.nvflare.charter`). Its signatures are over all of it
but what is added after it was drawn up: the signatures themselves, and a party's signed refusal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from crypto.signing.canonical import canonical

__all__ = ["APPROVAL", "approved"]

APPROVAL = "charter"
"""The domain of a party's signature over a charter."""
_ADDED = ("signatures", "refusals")


def approved(document: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 that the parties of a charter sign.

    Args:
        document: the charter as plain data, with or without signatures.

    Raises:
        NotCanonical: it holds something that canonical JSON cannot carry.
    """
    drawn_up = {name: value for name, value in document.items() if name not in _ADDED}
    return hashlib.sha256(canonical(drawn_up)).digest()
