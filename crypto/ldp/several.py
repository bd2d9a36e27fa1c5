"""Several values of one client in one message, each told by itself.

Their draws are independent, so the likelihood of the message is the product of theirs, and epsilon
of the message the sum of their epsilons.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from crypto.errors import NotCanonical, OutOfRange
from crypto.ldp.mechanism import FiniteRandomiser, Integers, Randomiser, Reals, several
from crypto.samplers import Stream

__all__ = ["Several"]


class Several(Randomiser):
    """A vector cut into pieces, one for each mechanism; its message is theirs, one after the other.

    Args:
        parts: per piece how many numbers it has, and its mechanism, whose estimate is as long.

    Raises:
        OutOfRange: there is no part.
    """

    name = "several"

    def __init__(self, parts: Sequence[tuple[int, FiniteRandomiser]]) -> None:
        if not parts:
            raise OutOfRange("A message tells one value at least.")
        self.parts = tuple(parts)
        self.length = sum(made.length for _, made in parts)
        self.low, self.high = min(m.low for _, m in parts), max(m.high for _, m in parts)
        self.epsilon = sum((made.epsilon for _, made in parts), Fraction(0))

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return the messages of all pieces, (length,)."""
        found, start = [], 0
        for entries, made in self.parts:
            found.append(made.encode(value[start : start + entries], stream))
            start += entries
        return np.concatenate(found)

    def decode(self, message: Integers) -> Reals:
        """Return the pieces that a message estimates, one after the other."""
        return np.concatenate([m.decode(one) for m, one in self._cut(message, "length")])

    def variance(self, clients: int) -> float:
        """Return the sum over the pieces."""
        several(clients)
        return sum(made.variance(clients) for _, made in self.parts)

    @property
    def size(self) -> int:
        """Bytes of one message."""
        return sum(made.size for _, made in self.parts)

    def pack(self, message: Integers) -> bytes:
        """Return the bytes of all pieces."""
        return b"".join(made.pack(one) for made, one in self._cut(message, "length"))

    def unpack(self, data: bytes) -> Integers:
        """Return the message that `pack` wrote; raises NotCanonical for any other bytes."""
        if len(data) != self.size:
            raise NotCanonical("A randomised message does not have its planned size.")
        return np.concatenate([made.unpack(one) for made, one in self._cut(data, "size")])

    def _cut(self, whole: Any, by: str) -> list[tuple[FiniteRandomiser, Any]]:
        """Return each mechanism with its piece of a message or of its bytes."""
        found, start = [], 0
        for _, made in self.parts:
            end = start + int(getattr(made, by))
            found.append((made, whole[start:end]))
            start = end
        return found
