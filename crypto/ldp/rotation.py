"""A public random rotation that spreads a vector evenly: Walsh-Hadamard behind random signs.

Ailon and Chazelle, "The fast Johnson-Lindenstrauss transform", SIAM J. Comput. 2009: an entry of
H D x / √N has mean square ‖x‖²/N over the signs D and sub-Gaussian tails.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.samplers import Stream, derive

__all__ = ["Rotation"]

Reals = NDArray[np.float64]
_LARGEST = 1 << 26


class Rotation:
    """x, (d,), to H D x / √N, (N,), where N is the next power of two.

    Args:
        length: d.
        seed: public; all clients of a mean use the same.

    Raises:
        OutOfRange: no entries, or more than 2^26.
    """

    def __init__(self, length: int, seed: bytes) -> None:
        if not 1 <= length <= _LARGEST:
            raise OutOfRange("A rotation takes between 1 and 2^26 entries.")
        self.length, self.width = length, 1 << (length - 1).bit_length()
        drawn = Stream(derive(seed, "ldp rotation")).uniform(2, length)
        self._signs = 1.0 - 2.0 * drawn.astype(np.float64)
        self._places = np.arange(length, dtype=np.uint64)

    def entries(self, vector: Reals, places: NDArray[np.int64]) -> Reals:
        """Return some entries of the rotated vector, (k,), without the others."""
        turned = vector * self._signs
        found = np.empty(places.size)
        for at, place in enumerate(places):
            odd = np.bitwise_count(self._places & np.uint64(place)) & np.uint8(1)
            found[at] = turned.sum() - 2.0 * turned[odd.view(np.bool_)].sum()
        return np.asarray(found / np.sqrt(self.width))

    def back(self, turned: Reals) -> Reals:
        """Return the vector, (d,), of a rotated one, (N,)."""
        found, half = turned.copy(), 1
        while half < self.width:
            pairs = found.reshape(-1, 2, half)
            found = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
            half *= 2
        return np.asarray(found[: self.length] * self._signs / np.sqrt(self.width))
