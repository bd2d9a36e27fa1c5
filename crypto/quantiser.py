"""From real numbers to exact integers and back, and how integers share one coefficient.

Every sum of this system is a sum of integers, so that all backends agree to the last bit. Nothing
here wraps: a number that does not fit is an OutOfRange, never a smaller number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.samplers import Stream

__all__ = ["Grid", "Packing", "from_limbs", "limbs"]

_MAX_GRID_BITS = 32
_MAX_PLAIN_BITS = 62


_BLOCK = 1 << 14  # values quantised at a time


@dataclass(frozen=True)
class Grid:
    """A symmetric grid of 2L+1 points on [-bound, bound], L = 2^(bits-1) - 1; zero is a point.

    `bound` is in the unit of the values, `bits` is the width of one signed level.
    """

    bound: float
    bits: int

    def __post_init__(self) -> None:
        """Raise OutOfRange for a grid that floating point cannot represent."""
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise OutOfRange("A grid's bound is a finite number above zero.")
        if not 2 <= self.bits <= _MAX_GRID_BITS:
            raise OutOfRange(f"A grid has between 2 and {_MAX_GRID_BITS} bits.")
        if not self.step > np.finfo(np.float64).tiny:
            raise OutOfRange("A grid's bound is too small for its number of bits.")

    @property
    def levels(self) -> int:
        """L, the largest level."""
        return (1 << (self.bits - 1)) - 1

    @property
    def step(self) -> float:
        """The distance of two neighbouring points, in the unit of the values."""
        return self.bound / self.levels

    def quantise(self, values: NDArray[np.float64], stream: Stream) -> NDArray[np.int64]:
        """Round each value of shape (d,) to one of its two neighbouring levels, without bias.

        The upper neighbour is taken with a probability equal to the distance from the lower one
        (to 2^-53), so the expectation of `restore(quantise(x))` is x, and zero is always zero.
        Raises OutOfRange for NaN, infinities and |x| > bound: clipping is a decision of the
        policy, not of the grid.
        """
        exact = np.asarray(values, dtype=np.float64)
        if exact.ndim != 1:
            raise OutOfRange("A grid takes a vector of shape (d,).")
        # L * step may exceed the bound by one unit in the last place, and level L is on the grid.
        # Written so that NaN fails the comparison too.
        if not bool(np.all(np.abs(exact) <= max(self.bound, self.levels * self.step))):
            raise OutOfRange("A value lies outside the grid or is not finite; clip it first.")
        levels = np.empty(exact.size, dtype=np.int64)
        for start in range(0, exact.size, _BLOCK):  # blocks stay in the cache: half the time
            part = slice(start, start + _BLOCK)
            scaled = exact[part] / self.step
            lower = np.floor(scaled)
            raised = lower + (stream.unit(scaled.size) < scaled - lower)
            # For the same reason the clamp removes at most one unit in the last place.
            levels[part] = np.clip(raised, -self.levels, self.levels)
        return levels

    def restore(self, total: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return levels, or sums of levels, in the unit of the values; shape kept."""
        return np.asarray(total, dtype=np.int64).astype(np.float64) * self.step


@dataclass(frozen=True)
class Packing:
    """How many unsigned values share one plaintext coefficient so that a cohort's sum still fits.

    `value_bits`: every value is below 2^value_bits. `cohort`: how many vectors will be summed.
    `plain_bits`: a coefficient holds numbers below 2^plain_bits.
    """

    value_bits: int
    cohort: int
    plain_bits: int

    def __post_init__(self) -> None:
        """Raise OutOfRange if not even one value fits into a coefficient."""
        if self.value_bits < 1 or self.cohort < 1:
            raise OutOfRange("A packing needs at least one bit and a cohort of at least one.")
        if not 1 <= self.plain_bits <= _MAX_PLAIN_BITS:
            raise OutOfRange(f"A coefficient holds between 1 and {_MAX_PLAIN_BITS} bits.")
        if self.per < 1:
            raise OutOfRange(
                f"A sum over {self.cohort} clients of {self.value_bits}-bit values needs "
                f"{self.slot_bits} bits and a coefficient holds {self.plain_bits}; use fewer bits "
                "per value or a smaller cohort."
            )

    @property
    def slot_bits(self) -> int:
        """Bits reserved per value: its own and ceil(log2 cohort) of head-room."""
        return self.value_bits + (self.cohort - 1).bit_length()

    @property
    def per(self) -> int:
        """Values per coefficient."""
        return self.plain_bits // self.slot_bits

    def coefficients(self, count: int) -> int:
        """Return how many coefficients `count` values take."""
        if count < 0:
            raise OutOfRange("A count of values is not negative.")
        return -(-count // self.per)

    def pack(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return shape (n,) values as shape (coefficients(n),); value k is slot k mod per.

        Raises OutOfRange for a value of 2^value_bits or more, and for a signed or float array.
        """
        taken = _unsigned(values)
        if taken.size and int(taken.max()) >> self.value_bits:
            raise OutOfRange("A value has more bits than the packing reserves for it.")
        packed = taken[:: self.per].copy()
        for slot in range(1, self.per):
            part = taken[slot :: self.per]  # one value shorter where the last slots stay empty
            packed[: part.size] |= part << np.uint64(slot * self.slot_bits)
        return packed

    def unpack(self, coefficients: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
        """Return the `count` slot totals of summed coefficients, shape (count,).

        Every total is checked against what `cohort` values can reach and every unused slot against
        zero: a wrong blind or an overflow shows here. Raises OutOfRange.
        """
        taken = _unsigned(coefficients)
        if taken.size != self.coefficients(count):
            raise OutOfRange("The number of coefficients does not match the number of values.")
        mask = np.uint64((1 << self.slot_bits) - 1)
        rows = np.empty((taken.size, self.per), dtype=np.uint64)
        for slot in range(self.per):
            rows[:, slot] = (taken >> np.uint64(slot * self.slot_bits)) & mask
        totals = rows.reshape(-1)
        ceiling = self.cohort * ((1 << self.value_bits) - 1)
        top = int(taken.max()) >> (self.per * self.slot_bits) if taken.size else 0
        if top or bool(np.any(totals > np.uint64(ceiling))) or bool(np.any(totals[count:])):
            raise OutOfRange("A coefficient is no sum of this cohort; its blind or key is wrong.")
        return totals[:count].copy()


def _unsigned(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Take an unsigned vector as it is; a cast would wrap negative numbers silently."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind != "u":
        raise OutOfRange("A vector of unsigned integers of shape (n,) is expected.")
    return array.astype(np.uint64, copy=False)


def limbs(value: int, count: int, bits: int) -> list[int]:
    """Split a non-negative integer into `count` limbs of `bits` bits, lowest first.

    Raises OutOfRange if it is negative or does not fit.
    """
    if count < 1 or bits < 1:
        raise OutOfRange("At least one limb of at least one bit is needed.")
    if value < 0 or value >> (count * bits):
        raise OutOfRange("An exact integer is negative or does not fit into its limbs.")
    mask = (1 << bits) - 1
    return [(value >> (bits * index)) & mask for index in range(count)]


def from_limbs(totals: Sequence[int], bits: int) -> int:
    """Join limb totals, lowest first; a total may exceed 2^bits after summing.

    Raises OutOfRange for a negative total.
    """
    if bits < 1 or any(total < 0 for total in totals):
        raise OutOfRange("Limb totals are not negative.")
    return sum(int(total) << (bits * index) for index, total in enumerate(totals))
