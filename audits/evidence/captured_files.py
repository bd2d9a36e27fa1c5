"""Captured rounds as they lie in a run folder.

Only digests: an audit verifies that the locked bytes are those that were written, whether or not
anybody can still open them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

__all__ = ["CapturedFiles", "PieceFile"]


@dataclass(frozen=True)
class PieceFile:
    """A piece as it lies there.

    Attributes:
        digest: SHA-256 (hex) of its bytes, locked as they are.
        head: its first bytes: mark and number of its format.
    """

    digest: str
    head: bytes


@dataclass(frozen=True, repr=False)
class CapturedFiles:
    """What lies in ``captured/``.

    Attributes:
        pieces: by party and name of the piece.
        strays: how many things lie there that are no piece of anybody's.
        day: on which it was looked at (UTC).
    """

    pieces: Mapping[str, Mapping[str, PieceFile]]
    strays: int
    day: date
