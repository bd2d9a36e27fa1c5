"""What all parties of a run know alike before it: names of clients, and seeds of learning."""

from __future__ import annotations

import hashlib

__all__ = ["client_names", "learning_seed"]


def client_names(count: int) -> tuple[str, ...]:
    """Return names of equal length: ``client-1`` … or ``client-01`` …"""
    width = len(str(count))
    return tuple(f"client-{i:0{width}d}" for i in range(1, count + 1))


def learning_seed(seed: int, *labels: str) -> int:
    """Derive a seed of learning randomness; never used for a secret."""
    content = "/".join(("secure-fgl", str(seed), *labels)).encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big")
