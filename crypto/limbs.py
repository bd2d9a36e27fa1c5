"""Exact integers that are too large for one value: cut into limbs, and joined after summing."""

from __future__ import annotations

from collections.abc import Sequence

from crypto.errors import OutOfRange


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
