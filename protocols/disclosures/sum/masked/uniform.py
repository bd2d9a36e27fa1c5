"""Does what should be masked look masked? Residues that are not uniform are refused.

Whoever puts masks on, takes them off, receives or audits a masked vector looks at it, with numpy
alone and whatever `crypto.masks` says: masks that a fault or a stranger's code left out or made of
zeros, constants or few bits are found by what they leave. Totals would not tell, since masks that
are zero come off as well as others.

Every test counts events of which the chance under uniform residues is known, and bounds the
chance of so many by Chernoff: of n coordinates each of which is hit with chance p, k > np are with
a chance of at most 2^-(n KL(k/n ‖ p)), KL in bits (Arratia and Gordon, Bull. Math. Biol. 51, 1989,
theorem 1). It refuses where that is below 2^-72. There are fewer than 2^12 such counts in one
look, so a good mask is refused with a chance below 2^-60, at any length. Where even n of n would
be no such event (fewer than 72/log2(1/p) coordinates) nothing is said: of residues mod 2^32 that
is one or two unchanged coordinates, and four of 16-bit values that stand bare.

**What this is not.** Masks that somebody knows (a fixed key, a generator with a back door) look
uniform. So do masks that are used twice.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.disclosures.sum.ring import Ring, Words
from protocols.errors import BadEnvelope, LocalProtocolError

__all__ = ["check_mask", "check_masked", "strange_mask", "strange_masked"]

_LIMIT = 72.0  # bits; 60, and 12 for the number of counts
_SAMPLE = 8192  # residues, evenly spaced, whose bytes and bits are counted
_ONES = ((np.arange(256)[:, None] >> np.arange(8)) & 1) * 1.0  # bits of every byte, (256, 8)


def check_mask(bare: Words, masked: Words, modulus: int) -> None:
    """Raise LocalProtocolError unless masks lie between two vectors.

    Args:
        bare: shape (n,), residues without the masks.
        masked: shape (n,), the same residues with them.
        modulus: of both.
    """
    if why := strange_mask(bare, masked, modulus):
        raise LocalProtocolError(
            f"Masks that should be uniform are not: {why}. Nothing more is sent or opened.",
            why="the code that makes them is damaged, or is not Secure-FGL's own",
            fix="install Secure-FGL again, into a virtual environment of its own; take what was "
            "sent in this run for sent in clear",
        )


def check_masked(words: Words, ring: Ring) -> None:
    """Raise BadEnvelope unless a client's vector, shape (ring.size,), can be a masked one."""
    if why := strange_masked(words, ring):
        raise BadEnvelope(
            f"An upload that should be masked is not: {why}.",
            why="the client's installation is damaged or not Secure-FGL's own, or it means to",
            fix="take what this client sent for sent in clear, and have its installation looked at",
        )


def strange_mask(bare: Words, masked: Words, modulus: int) -> str:
    """Say what is wrong with the difference of two vectors; nothing if it may be uniform."""
    same = int(np.count_nonzero(bare == masked))
    if _surprise(same, masked.size, 1 / modulus) > _LIMIT:
        return f"{same} of {masked.size} coordinates are as they were"
    after = _some(masked)  # the other coordinates of the difference are not looked at
    before = _some(bare).astype(after.dtype, copy=False)
    mask = after - before  # wraps
    if modulus < 1 << (8 * mask.itemsize):
        mask[after < before] += mask.dtype.type(modulus)
    return _uneven(mask, modulus)


def strange_masked(words: Words, ring: Ring) -> str:
    """Say what is wrong with a masked vector; nothing if it may be uniform."""
    if ring.packing is None:
        # What one client's integers would be without a mask.
        plain = (1 << ring.bits) + 2 * ring.margin
        lifted = words + words.dtype.type(ring.margin % ring.modulus)  # wraps, as it should
        if plain < ring.modulus:
            bare = int(np.count_nonzero(lifted < words.dtype.type(plain)))
            if _surprise(bare, words.size, plain / ring.modulus) > _LIMIT:
                return f"{bare} of {words.size} coordinates stand bare"
    return _uneven(words, ring.modulus)


def _some(words: Words) -> Words:
    """Return at most `_SAMPLE` of these, evenly spaced."""
    return words[:: -(-words.size // _SAMPLE) or 1]


def _uneven(words: Words, modulus: int) -> str:
    """Say if some byte, or bit, of uniform residues would not be so frequent."""
    some = np.ascontiguousarray(_some(words))
    if not some.size:
        return ""
    width = some.itemsize
    rows: NDArray[Any] = some.astype(some.dtype.newbyteorder("<"), copy=False).view(np.uint8)
    columns = rows.reshape(-1, width).T
    counts = np.stack([np.bincount(column, minlength=256) for column in columns])
    ones = (counts @ _ONES).astype(np.int64)  # of every bit
    bytes_, bits = counts.max(axis=1), np.maximum(ones, some.size - ones).ravel()
    for most, limits, what in zip(
        (bytes_, bits), _limits(some.size, width, modulus), ("byte", "bit"), strict=True
    ):
        for which in np.flatnonzero(most >= limits):
            return f"{most[which]} of {some.size} coordinates have the same {what} {which}"
    return ""


@lru_cache(maxsize=64)  # the vectors of a run are of few lengths and moduli
def _limits(size: int, width: int, modulus: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return from how many on of `size` residues too many agree in a byte, and in a bit."""
    return tuple(
        np.array([_too_many(size, _share(low, bits, modulus)) for low in range(0, 8 * width, bits)])
        for bits in (8, 1)
    )  # type: ignore[return-value]


def _too_many(size: int, share: float) -> int:
    """Return the fewest of `size` hits that are refused; more than all of them: none is."""
    few, many = math.floor(size * share), size + 1  # more hits are never less surprising
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if _surprise(middle, size, share) > _LIMIT else (middle, many)
    return many


def _share(low: int, width: int, modulus: int) -> float:
    """Return the largest share of the residues that agree in `width` bits from bit `low` on."""
    return min(1.0, (1 << low) * -(-modulus // (1 << (low + width))) / modulus)


def _surprise(hits: int, size: int, share: float) -> float:
    """Return -log2 of a bound on the chance of so many hits or more; 0 where none is surprising."""
    if share >= 1.0 or hits <= size * share:
        return 0.0
    part = hits / size
    rest = (1 - part) * math.log2((1 - part) / (1 - share)) if hits < size else 0.0
    return size * (part * math.log2(part / share) + rest)
