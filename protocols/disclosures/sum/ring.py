"""How the integers of a sum stand in what is summed: residues mod t, packed under encryption.

Encrypted: several integers share one coefficient mod t. Masks alone: one integer per residue mod
2^16, 2^32 or 2^64, whichever is the smallest that holds the cohort's total and its noise. In clear:
the same residues without masks. Where clients compute the model from the total, the words of a
check follow as residues of their own (`crypto.sum_check`).
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
from crypto.sum_check import check_words

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
        words: of a check, behind the integers' residues; 0 without one.
    """

    length: int
    bits: int
    clients: int
    margin: int
    modulus: int
    size: int
    packing: Packing | None = None
    words: int = 0

    @classmethod
    def of(
        cls,
        length: int,
        bits: int,
        clients: int,
        *,
        margin: int = 0,
        scheme: Scheme | None = None,
        checked: bool = False,
    ) -> Ring:
        """Return the ring for a sum, packed if it is encrypted.

        Raises:
            OutOfRange: the total and its noise do not fit.
        """
        needed = (clients * (2**bits - 1) + 2 * margin).bit_length()
        if scheme is not None:
            packing, modulus = (
                Packing(bits, clients, scheme.plain_bits, margin),
                scheme.plain_modulus,
            )
            words = check_words(modulus, needed) if checked else 0
            whole = -(-(packing.coefficients(length) + words) // scheme.degree) * scheme.degree
            return cls(length, bits, clients, margin, modulus, whole, packing, words)
        for width in _WIDTHS:
            if needed <= width:
                words = check_words(1 << width, needed) if checked else 0
                return cls(length, bits, clients, margin, 1 << width, length + words, None, words)
        raise OutOfRange("A total with its noise needs more than 64 bits; use fewer bits.")

    @property
    def total_bits(self) -> int:
        """Bits of the largest total above the smallest one."""
        most: int = self.clients * (2**self.bits - 1) + 2 * self.margin
        return most.bit_length()

    @property
    def wire_bytes(self) -> int:
        """Bytes of one client's residues on the wire, where they are not encrypted."""
        return self.size * container(self.modulus).itemsize

    @property
    def _used(self) -> int:
        """Residues of the integers."""
        return self.length if self.packing is None else self.packing.coefficients(self.length)

    def residues(self, integers: NDArray[np.int64], check: Words | None = None) -> Words:
        """Return one client's integers, shape (length,), as residues, shape (size,).

        Args:
            integers: of one client.
            check: its words, shape (words,); zeros if None.
        """
        if self.packing is None:
            # Two's complement: what is below zero becomes the residue of the same number.
            found: Words = integers.astype(container(self.modulus))
        else:
            given = integers if self.margin else integers.view(np.uint64)
            found = self.packing.pack(given, self.modulus)
        if found.size == self.size:
            return found
        whole = np.zeros(self.size, dtype=found.dtype)
        whole[: found.size] = found
        if check is not None:
            whole[found.size : found.size + self.words] = check
        return whole

    def check(self, total: Words) -> Words:
        """Return the words of a check that stand in summed residues, shape (words,)."""
        found = total[self._used : self._used + self.words]
        return found.astype(container(self.modulus), copy=False)

    def integers(self, total: Words) -> NDArray[np.int64]:
        """Return the totals, shape (length,), of summed residues.

        Raises:
            OutOfRange: this is not the sum of so many vectors: a mask or blind is still on it.
        """
        if total[self._used + self.words :].any():  # padding is zero: masks left on show here
            raise OutOfRange("This is not the total of the cohort that was asked.")
        total = total[: self._used]
        if self.packing is not None:
            words = total.astype(np.uint64, copy=False)
            return self.packing.unpack(words, self.length, self.modulus)
        kind = total.dtype.type
        lifted = total + kind(self.margin % self.modulus)  # wraps, as it should
        if np.any(lifted > kind(self.clients * (2**self.bits - 1) + 2 * self.margin)):
            raise OutOfRange("This is not the total of the cohort that was asked.")
        return lifted.astype(np.int64) - self.margin
