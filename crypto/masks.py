"""Pairwise masks: uniform mod t one by one, zero when the whole cohort's vectors are added.

Bonawitz et al., CCS 2017, section 4: of two clients that share a secret, one adds the keystream of
a derived key and the other subtracts it. Whoever sees fewer vectors than the whole cohort sees
uniform values, as long as one pair's secret is unknown to it.

Mod a power of two a mask is the keystream itself, read as little-endian words of the container:
nothing is drawn, rejected or widened. Any other modulus draws by rejection (`Stream.uniform`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.samplers import Stream

__all__ = ["MaskSum", "Words", "container", "masked"]

Words = NDArray[np.unsignedinteger[Any]]
"""A vector of unsigned numbers, shape (n,)."""

_POWER_BITS: Final = 64
_OTHER_BITS: Final = 48
_BLOCK: Final = 1 << 18  # bytes; words, keystream and zeros of one block share the second cache
_TOGETHER: Final = 64  # streams open at a time; also keeps 64 masks below 2^48 from wrapping


def container(modulus: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the smallest of uint16, uint32 and uint64 that holds `modulus` - 1, little-endian.

    Raises OutOfRange unless 2 <= modulus <= 2^64 for a power of two, 2^48 for any other.
    """
    if modulus < 2 or modulus > 1 << (_POWER_BITS if _is_power(modulus) else _OTHER_BITS):
        raise OutOfRange("Masks are drawn mod 2^b up to 2^64, or mod any other number up to 2^48.")
    bits = (modulus - 1).bit_length()
    return np.dtype("<u2" if bits <= 16 else "<u4" if bits <= 32 else "<u8")


def masked(
    values: Words,
    modulus: int,
    plus: Iterable[bytes],
    minus: Iterable[bytes],
    *,
    spare: bool = True,
) -> Words:
    """Return values + the masks of `plus` - the masks of `minus`, mod `modulus`, shape (n,).

    Args:
        values: shape (n,), of any unsigned type, each below `modulus`.
        modulus: see `container`, whose type the result has.
        plus: 32-byte keys whose masks are added; each key may be used for one vector only.
        minus: keys whose masks are subtracted.
        spare: leave `values` as they are. A caller that needs them no more saves a copy, if they
            are of the container's type already.

    Raises:
        OutOfRange: a value of `modulus` or more, a signed or float array, or an impossible modulus.
    """
    total = _checked(values, modulus).astype(container(modulus), copy=spare)
    _mask(total, modulus, plus, minus)
    return total


class MaskSum:
    """A running sum of masked vectors mod `modulus`, shape (size,), in one container."""

    def __init__(self, modulus: int, size: int) -> None:
        """Start at zero; raises OutOfRange for an impossible modulus or a negative size."""
        if size < 0:
            raise OutOfRange("A vector has no negative size.")
        self._modulus = modulus
        self._total: Words = np.zeros(size, dtype=container(modulus))

    @property
    def values(self) -> Words:
        """The sum so far, each value below the modulus; a copy."""
        return self._total.copy()

    def add(self, vector: Words) -> None:
        """Add a vector of shape (size,), each value below the modulus; raises OutOfRange."""
        part = _checked(vector, self._modulus)
        if part.size != self._total.size:
            raise OutOfRange("A vector of another size cannot join this sum.")
        if _is_power(self._modulus):
            np.add(self._total, part, out=self._total, casting="same_kind")
            _reduce(self._total, self._modulus)
        else:
            wide = np.add(self._total, part, dtype=np.uint64)
            # Below the modulus the subtraction wraps to a huge number: the minimum is the residue.
            self._total[:] = np.minimum(wide, wide - np.uint64(self._modulus))

    def take(self, plus: Iterable[bytes], minus: Iterable[bytes]) -> None:
        """Take off the masks that `masked(…, plus, minus)` put on: the exact inverse.

        The masks of `plus` are subtracted and those of `minus` are added.
        """
        _mask(self._total, self._modulus, minus, plus)


def _checked(values: Words, modulus: int) -> Words:
    """Return an unsigned vector whose values all lie below the modulus."""
    taken = np.asarray(values)
    if taken.ndim != 1 or taken.dtype.kind != "u":
        raise OutOfRange("A vector of unsigned integers of shape (n,) is expected.")
    fits = modulus > np.iinfo(taken.dtype).max  # then the type says it, and no pass is needed
    if not fits and taken.size and int(taken.max()) >= modulus:
        raise OutOfRange("A value is not reduced by the modulus of its masks.")
    return taken


def _mask(total: Words, modulus: int, plus: Iterable[bytes], minus: Iterable[bytes]) -> None:
    """Add and subtract masks in place; `total` is of the container and reduced, and stays so."""
    add = _add_words if _is_power(modulus) else _add_drawn
    keys = ((key, sign) for sign, part in ((True, plus), (False, minus)) for key in part)
    while some := [(Stream(key), sign) for key, sign in islice(keys, _TOGETHER)]:
        add(total, modulus, some)


def _add_words(total: Words, modulus: int, streams: list[tuple[Stream, bool]]) -> None:
    """Power of two: words wrap by themselves. Every block takes all streams while it is cached."""
    buffer = np.empty(min(_BLOCK, total.nbytes), dtype=np.uint8)
    keystream = buffer.view(total.dtype)
    for part in _blocks(total):
        words = keystream[: part.size]
        for stream, plus in streams:
            stream.fill(buffer[: part.nbytes])
            (np.add if plus else np.subtract)(part, words, out=part)
        _reduce(part, modulus)


def _add_drawn(total: Words, modulus: int, streams: list[tuple[Stream, bool]]) -> None:
    """Any other modulus: at most 64 masks below 2^48 are added to a 64-bit copy, then reduced."""
    top = np.uint64(modulus)
    for part in _blocks(total):
        wide = part.astype(np.uint64)
        for stream, plus in streams:
            drawn = stream.uniform(modulus, part.size)
            wide += drawn if plus else top - drawn
        part[:] = wide % top


def _reduce(total: Words, modulus: int) -> None:
    """Reduce mod a power of two in place; a container that is exactly as wide has wrapped."""
    if modulus < 1 << (8 * total.itemsize):
        total &= total.dtype.type(modulus - 1)


def _blocks(total: Words) -> Iterator[Words]:
    step = _BLOCK // total.itemsize
    return (total[start : start + step] for start in range(0, total.size, step))


def _is_power(modulus: int) -> bool:
    return modulus & (modulus - 1) == 0
