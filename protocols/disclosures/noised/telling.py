"""Which mechanism tells a message: one for a vector, or one for each field that is told by itself.

A `category` is one place drawn by weights, told by randomised response or unary encoding, and a
`bounded` number by the piecewise mechanism. All fields of a message share its epsilon equally. The
guard's `mechanism` is that of vectors alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import prod

from crypto.errors import CryptoError
from crypto.ldp.drawn import DrawnCategory
from crypto.ldp.gaussian import GaussianVector
from crypto.ldp.laplace import LaplaceVector
from crypto.ldp.mechanism import FiniteRandomiser, Randomiser
from crypto.ldp.piecewise import Piecewise
from crypto.ldp.several import Several
from crypto.ldp.sqkr import Sqkr
from protocols.errors import PolicyError
from protocols.messages import Message
from protocols.plan.noise import NoisePlan
from protocols.plan.plan import Item

__all__ = ["Parts", "entries_of", "parts_of", "planned_parts", "randomiser_of", "teller", "tells"]

Parts = tuple[tuple[str, int], ...]
"""Per piece of a message's numbers, in the order of its fields: how it is told, and how many."""


def parts_of(kinds: Sequence[type[Message]], dims: Mapping[str, int]) -> Parts:
    """Return the pieces of messages; one, told as a vector, where no field is told by itself."""
    return _pieces((f.told, prod(f.sizes(dims))) for kind in kinds for f in kind.fields)


def planned_parts(item: Item) -> Parts:
    """Return the pieces of an item's messages, as its plan says them."""
    return _pieces((f.told, prod(f.shape)) for m in item.messages for f in m.fields)


def _pieces(fields: Iterable[tuple[str, int]]) -> Parts:
    found = tuple(fields)
    return found if tells(found) else (("", entries_of(found)),)


def tells(parts: Parts) -> bool:
    """Tell whether any piece is told by itself."""
    return any(told for told, _ in parts)


def entries_of(parts: Parts | int) -> int:
    """Return how many numbers the pieces have together, or a vector has."""
    return parts if isinstance(parts, int) else sum(size for _, size in parts)


def teller(told: str, size: int, epsilon: Fraction) -> FiniteRandomiser:
    """Return the mechanism of one piece; raises CryptoError for what cannot be told."""
    if told == "category":
        return DrawnCategory(size, epsilon)
    if told == "bounded" and size == 1:
        return Piecewise(0.5, epsilon, centre=0.5)
    raise CryptoError(f"A field is told as {told!r}, which no mechanism does.")


@lru_cache(maxsize=64)
def randomiser_of(noise: NoisePlan, parts: Parts | int, bound: float, label: str) -> Randomiser:
    """Return the randomiser of one item's messages.

    Args:
        noise: as planned.
        parts: pieces of a message, or the entries of a vector, at most as many as planned for.
        bound: of `clip`.
        label: of the item; with it goes the public rotation.

    Raises:
        PolicyError: it cannot be drawn.
    """
    pieces = (("", parts),) if isinstance(parts, int) else parts
    try:
        if tells(pieces):
            share = Fraction(noise.pure or "0") / len(pieces)
            return Several([(size, teller(told, size, share)) for told, size in pieces])
        length = entries_of(pieces)
        if noise.mechanism == "gaussian_vector":
            return GaussianVector(length, bound, float(noise.sigma), int(float(noise.l2)))
        if noise.mechanism == "laplace_vector":
            return LaplaceVector.within(length, bound, float(noise.pure), int(float(noise.l2)))
        seed = hashlib.sha256(b"secure-fgl/rotation\0" + label.encode()).digest()
        return Sqkr(length, bound, float(noise.pure), seed)
    except CryptoError as error:
        raise PolicyError(
            "No noise of one client's own can be drawn for this target.",
            why=str(error),
            fix="plan fewer rounds, a larger epsilon, or another mechanism of own_noise",
        ) from error
