"""Exact integers that are too large for one value: cut into limbs, and joined after summing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from crypto.errors import OutOfRange
from crypto.samplers import Stream


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


# --- From real numbers to exact integers and back, and how integers share one coefficient ---
#
# Every sum of this system is a sum of integers, so that all backends agree to the last bit. Nothing
# here wraps: a number that does not fit is an OutOfRange, never a smaller number.

Words = NDArray[np.unsignedinteger[Any]]
_Rounding = Callable[[NDArray[np.floating[Any]]], NDArray[np.signedinteger[Any]]]

_MAX_GRID_BITS = 32
_MAX_PLAIN_BITS = 62
_WORD_BITS = 16  # up to here a sum of level, draw and offset rounds away less than a draw's step
_SCALES = (2.0**-1000, 2.0**1000)  # within, the reciprocal of a step is exact to half a unit
_BLOCK = 1 << 15  # values rounded at a time; their scratch stays in the cache


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

    def quantise(self, values: NDArray[np.floating[Any]], stream: Stream) -> NDArray[np.int64]:
        """Round each value of shape (d,) to one of its two neighbouring levels, without bias.

        The upper neighbour is taken with a probability equal to the distance from the lower one,
        to within 2^-32 (grids of up to 16 bits: 32 bits of the stream a value; wider ones: 64 bits
        and 2^-53), so the expectation of `restore(quantise(x))` is x, and zero is always zero.
        Raises OutOfRange for NaN, infinities and |x| > bound: clipping is a decision of the
        policy, not of the grid.
        """
        exact = _vector(values)
        levels = np.empty(exact.size, dtype=np.int64)
        for part, lifted in self._blocks(exact, stream):
            np.subtract(lifted, self.levels, out=levels[part])
        return levels

    def lifted(
        self,
        values: NDArray[np.floating[Any]],
        stream: Stream,
        dtype: DTypeLike = np.uint64,
        *,
        out: Words | None = None,
    ) -> Words:
        """Return `quantise` + L as unsigned numbers 0 … 2L of `dtype`, shape (d,), in one pass.

        Given `out`, they are written there, in its type, and `dtype` says nothing. Raises
        OutOfRange as `quantise` does, and for a type that does not hold 2L or another shape.
        """
        kind = np.dtype(dtype) if out is None else out.dtype
        if kind.kind != "u" or np.iinfo(kind).max < 2 * self.levels:
            raise OutOfRange("Lifted levels need an unsigned type that holds 2L.")
        exact = _vector(values)
        found = np.empty(exact.size, dtype=kind) if out is None else out
        if found.shape != exact.shape:
            raise OutOfRange("Lifted levels go where there is one place for each value.")
        for part, lifted in self._blocks(exact, stream):
            found[part] = lifted
        return found

    def _blocks(
        self, exact: NDArray[np.floating[Any]], stream: Stream
    ) -> Iterator[tuple[slice, NDArray[np.signedinteger[Any]]]]:
        """Yield (place, levels + L), at most one block at a time; the scratch is used again."""
        narrow = self.bits <= _WORD_BITS and _SCALES[0] < self.step < _SCALES[1]
        rounded = self._narrow(stream, exact.size) if narrow else self._wide(stream)
        # L * step may exceed the bound by one unit in the last place, and level L is on the grid.
        limit = max(self.bound, self.levels * self.step)
        for start in range(0, exact.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            block = exact[part]
            # Written so that NaN, which max and min hand on, fails the comparison too.
            if not (float(block.max()) <= limit and float(block.min()) >= -limit):
                raise OutOfRange("A value lies outside the grid or is not finite; clip it first.")
            yield part, rounded(block)

    def _narrow(self, stream: Stream, size: int) -> _Rounding:
        """Round by floor(x/step + L + u), u one of 2^32 equidistant midpoints in (0, 1).

        u = (w + 1/2) / 2^32 for a word w, read as signed because that converts fastest. L + u has
        at most 49 bits and is exact, so a value on a level stays there. x/step errs by less than
        2^-35 and L + u < L + 1 - 2^-34: no draw leaves 0 … 2L, and no clamp is needed.
        """
        count = min(size, _BLOCK)
        raw = np.empty(4 * count, dtype=np.uint8)
        words, scaled, draws = raw.view("<i4"), np.empty(count), np.empty(count)
        whole = np.empty(count, dtype=np.int32)
        inverse, offset = 1.0 / self.step, self.levels + 0.5 + 2.0**-33

        def rounded(block: NDArray[np.floating[Any]]) -> NDArray[np.signedinteger[Any]]:
            n = block.size
            stream.fill(raw[: 4 * n])
            np.multiply(words[:n], 2.0**-32, out=draws[:n])
            np.add(draws[:n], offset, out=draws[:n])
            np.multiply(block, inverse, out=scaled[:n], dtype=np.float64)
            np.add(scaled[:n], draws[:n], out=scaled[:n])
            whole[:n] = scaled[:n]  # cut off, which is floor: nothing here is below -2^-35
            return whole[:n]

        return rounded

    def _wide(self, stream: Stream) -> _Rounding:
        """Round by comparing the fraction with 53 random bits, where a sum would lose too many."""

        def rounded(block: NDArray[np.floating[Any]]) -> NDArray[np.signedinteger[Any]]:
            scaled = block.astype(np.float64) / self.step
            lower = np.floor(scaled)
            raised = lower + (stream.unit(scaled.size) < scaled - lower)
            # The limit of `_blocks` and the division may each add one unit in the last place.
            kept: NDArray[np.float64] = np.clip(raised, -self.levels, self.levels)
            return kept.astype(np.int64) + np.int64(self.levels)

        return rounded

    def restore(self, total: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return levels, or sums of levels, in the unit of the values; shape kept."""
        return np.asarray(total, dtype=np.int64).astype(np.float64) * self.step


def _vector(values: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    taken = np.asarray(values)
    if taken.ndim != 1:
        raise OutOfRange("A grid takes a vector of shape (d,).")
    # Single precision is widened block by block; everything else once.
    return taken if taken.dtype in (np.float32, np.float64) else taken.astype(np.float64)


@dataclass(frozen=True)
class Packing:
    """How many values share one plaintext coefficient so that a cohort's sum still fits.

    `value_bits`: every value is below 2^value_bits. `cohort`: how many vectors will be summed.
    `plain_bits`: a coefficient holds numbers below 2^plain_bits. `margin`: head-room for noise on
    both sides (O19): a total lies in [-margin, cohort (2^value_bits - 1) + margin]. With a margin
    values may be negative, and a coefficient is a signed sum mod the plaintext modulus.
    """

    value_bits: int
    cohort: int
    plain_bits: int
    margin: int = 0

    def __post_init__(self) -> None:
        """Raise OutOfRange if not even one value fits into a coefficient."""
        if self.value_bits < 1 or self.cohort < 1 or self.margin < 0:
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
    def capacity(self) -> int:
        """The largest total above the smallest one: what a slot must hold."""
        return self.cohort * ((1 << self.value_bits) - 1) + 2 * self.margin

    @property
    def slot_bits(self) -> int:
        """Bits reserved per value: as many as the capacity has."""
        return self.capacity.bit_length()

    @property
    def per(self) -> int:
        """Values per coefficient."""
        return self.plain_bits // self.slot_bits

    def coefficients(self, count: int) -> int:
        """Return how many coefficients `count` values take."""
        if count < 0:
            raise OutOfRange("A count of values is not negative.")
        return -(-count // self.per)

    def pack(self, values: NDArray[np.integer[Any]], modulus: int | None = None) -> Words:
        """Return shape (n,) values as shape (coefficients(n),); value k is slot k mod per.

        Args:
            values: of any integer type, from -margin to 2^value_bits - 1 + margin.
            modulus: the plaintext modulus, at least 2^plain_bits; needed only with a margin.

        Raises:
            OutOfRange: a value beyond its range, a float array, or an impossible modulus.
        """
        taken = np.asarray(values)
        if taken.ndim != 1 or taken.dtype.kind not in "iu":
            raise OutOfRange("A vector of integers of shape (n,) is expected.")
        top = (1 << self.value_bits) - 1 + self.margin
        low = int(taken.min(initial=0)) if taken.dtype.kind == "i" else 0
        if int(taken.max(initial=0)) > top or low < -self.margin:
            raise OutOfRange("A value has more bits than the packing reserves for it.")
        packed = taken[:: self.per].astype(np.int64)
        for slot in range(1, self.per):
            part = taken[slot :: self.per]  # one value shorter where the last slots stay empty
            head = packed[: part.size]
            head += part.astype(np.int64, copy=False) << np.int64(slot * self.slot_bits)
        if self.margin:  # each is above -2^plain_bits; the sign is all ones or zero
            packed += (packed >> np.int64(63)) & np.int64(self._modulus(modulus))
        return packed.view(np.uint64)

    def unpack(
        self, coefficients: Words, count: int, modulus: int | None = None
    ) -> NDArray[np.int64]:
        """Return the `count` slot totals of summed coefficients, shape (count,).

        Every total is checked against what `cohort` values and the margin can reach and every
        unused slot against zero: a wrong blind or an overflow shows here. `modulus` is that of
        `pack`. Raises OutOfRange.
        """
        taken = _unsigned(coefficients)
        if taken.size != self.coefficients(count):
            raise OutOfRange("The number of coefficients does not match the number of values.")
        if self.margin:
            taken = self._lifted(taken, self._modulus(modulus))
        mask = np.uint64((1 << self.slot_bits) - 1)
        rows, shifted = np.empty((taken.size, self.per), dtype=np.uint64), np.empty_like(taken)
        for slot in range(self.per):
            np.right_shift(taken, np.uint64(slot * self.slot_bits), out=shifted)
            np.bitwise_and(shifted, mask, out=rows[:, slot])
        totals = rows.reshape(-1)
        top = int(taken.max()) >> (self.per * self.slot_bits) if taken.size else 0
        above = bool(np.any(totals > np.uint64(self.capacity)))
        if top or above or bool(np.any(totals[count:] != np.uint64(self.margin))):
            raise OutOfRange("A coefficient is no sum of this cohort; its blind or key is wrong.")
        signed = totals[:count].view(np.int64)  # below 2^62
        signed -= np.int64(self.margin)
        return signed

    def _lifted(self, taken: NDArray[np.uint64], modulus: int) -> NDArray[np.uint64]:
        """Add the margin to every slot, which makes all of them non-negative, mod `modulus`."""
        if taken.size and int(taken.max()) >= modulus:
            raise OutOfRange("A coefficient is not reduced by the plaintext modulus.")
        offset = sum(self.margin << (slot * self.slot_bits) for slot in range(self.per))
        raised: NDArray[np.uint64] = taken + np.uint64(offset)  # both below 2^63
        # Below the modulus the subtraction wraps to a huge number: the minimum is the residue.
        np.minimum(raised, raised - np.uint64(modulus), out=raised)
        return raised

    def _modulus(self, modulus: int | None) -> int:
        if modulus is None or not 1 << self.plain_bits <= modulus < 1 << 63:
            raise OutOfRange("Packing with head-room for noise needs the plaintext modulus.")
        return modulus


def _unsigned(values: Words) -> NDArray[np.uint64]:
    """Take an unsigned vector as it is; a cast would wrap negative numbers silently."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind != "u":
        raise OutOfRange("A vector of unsigned integers of shape (n,) is expected.")
    return array.astype(np.uint64, copy=False)
