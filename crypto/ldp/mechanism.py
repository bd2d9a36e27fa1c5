"""What every local randomiser offers, and its messages as bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crypto.errors import NotCanonical, OutOfRange
from crypto.samplers import Stream

__all__ = ["FiniteRandomiser", "Integers", "Randomiser", "Reals"]

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]


class Randomiser(ABC):
    """A mechanism at one client: a value in, whole numbers out.

    A value outside of the domain is brought into it and never refused: a refusal would tell of it.

    Attributes:
        name: in policies.
        length: numbers of one message.
        low, high: the smallest and the largest of them.
    """

    name: ClassVar[str]
    length: int
    low: int
    high: int

    @abstractmethod
    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return one message, (length,).

        `stream` must come from `crypto.samplers.entropy` and serve nothing else (O15).
        """

    @abstractmethod
    def decode(self, message: Integers) -> Reals:
        """Return what one message estimates, without bias: its value plus noise."""

    @abstractmethod
    def variance(self, clients: int) -> float:
        """Return the expected squared error of a mean, all entries together, at the worst values.

        Raises OutOfRange below one client.
        """

    def mean(self, messages: Sequence[Integers]) -> Reals:
        """Return the estimate of the mean of so many clients' values."""
        several(len(messages))
        total = self.decode(messages[0]).copy()
        for message in messages[1:]:
            total += self.decode(message)
        return np.asarray(total / len(messages))

    @property
    def width(self) -> int:
        """Bits of one number on the wire."""
        return max(1, (self.high - self.low).bit_length())

    @property
    def size(self) -> int:
        """Bytes of one message, the same for every value."""
        return -(-self.length * self.width // 8)

    def pack(self, message: Integers) -> bytes:
        """Return one message as `size` bytes: each number less `low`, lowest bit first."""
        lifted = (message - self.low).astype("<u8")
        if self.width % 8 == 0:
            return lifted.view(np.uint8).reshape(-1, 8)[:, : self.width // 8].tobytes()
        shifts = np.arange(self.width, dtype=np.uint64)
        bits = ((lifted[:, None] >> shifts) & np.uint64(1)).astype(np.uint8)
        return np.packbits(bits.ravel(), bitorder="little").tobytes()

    def unpack(self, data: bytes) -> Integers:
        """Return the message that `pack` wrote; raises NotCanonical for any other bytes."""
        if len(data) != self.size:
            raise NotCanonical("A randomised message does not have its planned size.")
        if self.width % 8 == 0:
            wide = np.zeros((self.length, 8), dtype=np.uint8)
            wide[:, : self.width // 8] = np.frombuffer(data, np.uint8).reshape(self.length, -1)
            return self._lowered(wide.view("<u8").ravel())
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        used = self.length * self.width
        if bits[used:].any():
            raise NotCanonical("A randomised message holds bits behind its end.")
        rows = bits[:used].reshape(self.length, self.width).astype(np.int64)
        return self._lowered(rows @ (np.int64(1) << np.arange(self.width, dtype=np.int64)))

    def _lowered(self, lifted: NDArray[Any]) -> Integers:
        """Return numbers from what was packed; raises NotCanonical for one that none can be."""
        if lifted.size and int(lifted.max()) > self.high - self.low:
            raise NotCanonical("A randomised message holds a number that none can have.")
        return np.asarray(lifted.astype(np.int64) + self.low)


class FiniteRandomiser(Randomiser):
    """A randomiser with finitely many messages, all of rational probability: pure epsilon.

    Attributes:
        epsilon: what one message is asked to keep to, for any two values (replace-one), exactly.
    """

    epsilon: Fraction

    @abstractmethod
    def law(self, value: Any) -> dict[tuple[int, ...], Fraction]:
        """Return the exact probability of every message; for small domains."""


def several(clients: int) -> None:
    """Raise OutOfRange unless there is a client to take the mean of."""
    if clients < 1:
        raise OutOfRange("A mean is of one client at least.")
