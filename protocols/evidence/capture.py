"""Captured rounds: what a party keeps of its own, locked, so that it can be audited later.

The owner of the data can only show what its messages still reveal if it can look at them again. So
in the rounds that the policy names each client keeps what it was given, its site's memory and draws
as they were before it answered, the very bytes that left, and who was mixed with whom; the
aggregator keeps what the Ask brought back. Where items are matched, or rows of nodes are found by
tags, a client keeps its tags, the matcher those that it compared, and a tag server what it could
look tags up in by itself: tags made with its share alone, never the share. What a client computed
before protection is never kept: an audit computes it again.

Of a masked vector a client also keeps the residues as they went into the seal or the ciphertext,
which nobody but the receiver could open again. They are uniform; beside what the client said they
are the sum of its masks. No key and no single pair's mask is kept.

Where a client is handed a row of its own, it keeps that too, though it says nothing to it: nobody
else has it, so nobody else could show what others in it give away.

Each piece is written once, and the party's ledger names it with the SHA-256 of its locked bytes, in
the same durable write as the exchange that it is of. So a piece that is changed, exchanged or taken
away is seen by whoever has the ledger, long after the key is gone.

Who sees what: nobody without the party's own key, which lies elsewhere and is destroyed when the
days are over. Whoever has it sees what the party itself saw in these rounds. Nothing of a capture
leaves the party.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from protocols.strict import Strict

__all__ = [
    "Capture",
    "captured_rounds",
    "is_piece",
    "masked_digest",
    "of_piece",
    "piece",
    "tags_of",
]

_TAGS = "-tags"
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Capture(Strict):
    """What a party keeps for audits.

    Attributes:
        rounds: ``sampled``: the first, the middle and the last; ``all``.
        days: after which it can no longer be read.
    """

    rounds: Literal["sampled", "all"] = "sampled"
    days: int = Field(default=30, ge=1, le=3650, strict=True)


def captured_rounds(capture: Capture | None, rounds: int) -> Sequence[int]:
    """Return which of the rounds 1..`rounds` are captured."""
    if capture is None or rounds < 1:
        return ()
    if capture.rounds == "all":
        return range(1, rounds + 1)
    return sorted({1, (rounds + 1) // 2, rounds})


def piece(name: str, round: int, exchange: int) -> str:
    """Return the name of a piece; raises ValueError for a name that is no exchange's."""
    if not _WORD.fullmatch(name):
        raise ValueError("an exchange's name is a word")
    return f"{name}-{round}-{exchange}"


def tags_of(place: str) -> str:
    """Return the name of the piece that holds the tags of an answer, by that of the answer."""
    return place + _TAGS


def is_piece(text: str, round: int, exchange: int) -> bool:
    """Tell whether a text names a piece of this round and exchange."""
    name = text.split("-", maxsplit=1)[0]
    if not _WORD.fullmatch(name):
        return False
    place = piece(name, round, exchange)
    return text in (place, tags_of(place))


def of_piece(text: str) -> tuple[str, int, int]:
    """Return exchange name, round and exchange number of a piece; raises ValueError."""
    name, round, exchange = text.removesuffix(_TAGS).split("-")
    return name, int(round), int(exchange)


def masked_digest(nonce: str, words: NDArray[np.unsignedinteger[Any]]) -> str:
    """Return the ledger's commitment (hex) to a masked vector inside an envelope.

    Args:
        nonce: of the envelope's header.
        words: shape (n,), the residues.
    """
    found = hashlib.sha256(b"secure-fgl/masked\0" + bytes.fromhex(nonce))
    found.update(np.ascontiguousarray(words).data)
    return found.hexdigest()
