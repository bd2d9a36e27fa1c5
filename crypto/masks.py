"""Pairwise masks: uniform mod t one by one, zero when the whole cohort's vectors are added.

Bonawitz et al., CCS 2017, section 4: of two clients that share a secret, one adds the keystream of
a derived key and the other subtracts it. Whoever sees fewer vectors than the whole cohort sees
uniform values, as long as one pair's secret is unknown to it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.samplers import Stream

__all__ = ["MAX_MASKS", "masked"]

MAX_MASKS = 1 << 15
"""How many masks below 2^48 add up without wrapping 64 bits."""
_MAX_BITS = 48


def masked(
    values: NDArray[np.uint64], modulus: int, plus: Iterable[bytes], minus: Iterable[bytes]
) -> NDArray[np.uint64]:
    """Return values + the masks of `plus` - the masks of `minus`, mod `modulus`, shape (n,).

    Args:
        values: shape (n,), each below `modulus`.
        modulus: at most 2^48.
        plus: 32-byte keys whose masks are added; each key may be used for one vector only.
        minus: keys whose masks are subtracted.

    Raises:
        OutOfRange: a value of `modulus` or more, too large a modulus, or too many masks.
    """
    added, taken = list(plus), list(minus)
    if not 1 < modulus <= 1 << _MAX_BITS or len(added) + len(taken) > MAX_MASKS:
        raise OutOfRange("Masks are drawn mod at most 2^48, and at most 2^15 of them are added.")
    if values.size and int(values.max()) >= modulus:
        raise OutOfRange("A value is not reduced by the modulus of its masks.")
    total = values.astype(np.uint64)  # a copy
    for key in added:
        total += Stream(key).uniform(modulus, total.size)
    for key in taken:
        total += np.uint64(modulus) - Stream(key).uniform(modulus, total.size)
    return total % np.uint64(modulus)
