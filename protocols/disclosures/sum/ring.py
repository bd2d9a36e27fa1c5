"""How the integers of a sum stand in what is summed: residues mod t, packed under encryption.

Encrypted: several integers share one coefficient mod t. Masks alone: one integer per residue mod
2^16, 2^32 or 2^64, whichever is the smallest that holds the cohort's total and its noise. In clear:
the same residues without masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.homomorphic.he import Scheme
from crypto.masks import container
from crypto.quantiser import Packing

Words = NDArray[np.unsignedinteger[Any]]
_WIDTHS = (16, 32, 64)


@dataclass(frozen=True)
class Ring:
    """Residues mod `modulus`, `size` of them, for `length` integers of `bits` bits.

    Attributes:
        length: integers of one client's vector.
        bits: width of one integer before noise.
        clients: how many vectors are summed at most.
        margin: head-room of a total on either side, for noise (O19).
        modulus: t.
        size: residues that are masked, encrypted and summed.
        packing: how integers share residues; None where each has one of its own.
    """

    length: int
    bits: int
    clients: int
    margin: int
    modulus: int
    size: int
    packing: Packing | None = None

    @classmethod
    def of(
        cls, length: int, bits: int, clients: int, *, margin: int = 0, scheme: Scheme | None = None
    ) -> Ring:
        """Return the ring for a sum, packed if it is encrypted.

        Raises:
            OutOfRange: the total and its noise do not fit.
        """
        if scheme is not None:
            packing = Packing(bits, clients, scheme.plain_bits, margin)
            whole = -(-packing.coefficients(length) // scheme.degree) * scheme.degree
            return cls(length, bits, clients, margin, scheme.plain_modulus, whole, packing)
        needed = (clients * (2**bits - 1) + 2 * margin).bit_length()
        for width in _WIDTHS:
            if needed <= width:
                return cls(length, bits, clients, margin, 1 << width, length)
        raise OutOfRange("A total with its noise needs more than 64 bits; use fewer bits.")

    @property
    def wire_bytes(self) -> int:
        """Bytes of one client's residues on the wire, where they are not encrypted."""
        return self.size * container(self.modulus).itemsize

    def residues(self, integers: NDArray[np.int64]) -> Words:
        """Return one client's integers, shape (length,), as residues, shape (size,)."""
        if self.packing is None:
            # Two's complement: what is below zero becomes the residue of the same number.
            return integers.astype(container(self.modulus))
        given = integers if self.margin else integers.view(np.uint64)
        packed = self.packing.pack(given, self.modulus)
        whole = np.zeros(self.size, dtype=np.uint64)
        whole[: packed.size] = packed
        return whole

    def integers(self, total: Words) -> NDArray[np.int64]:
        """Return the totals, shape (length,), of summed residues.

        Raises:
            OutOfRange: this is not the sum of so many vectors: a mask or blind is still on it.
        """
        if self.packing is not None:
            used = self.packing.coefficients(self.length)
            if total[used:].any():  # padding is zero; masks that did not come off show here
                raise OutOfRange("This is not the total of the cohort that was asked.")
            words = total[:used].astype(np.uint64, copy=False)
            return self.packing.unpack(words, self.length, self.modulus)
        kind = total.dtype.type
        lifted = total + kind(self.margin % self.modulus)  # wraps, as it should
        if np.any(lifted > kind(self.clients * (2**self.bits - 1) + 2 * self.margin)):
            raise OutOfRange("This is not the total of the cohort that was asked.")
        return lifted.astype(np.int64) - self.margin
