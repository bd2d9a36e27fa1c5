"""The group ristretto255 (RFC 9496) in libsodium, through `rbcl`, with every check that it needs.

`rbcl` (libsodium 1.0.18) takes the identity for a valid point, ignores the top bit of an encoding,
and some of its functions do not look at libsodium's refusal of bytes that are no point. Nobody but
this module imports it, and here a point is looked at before it is used.

libsodium's multiplication, inversion and map to the group take the same time for all secrets.
Python around them takes time by how many there are, and memory that held a scalar is not wiped.
"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Final

from crypto.errors import InvalidKey, InvalidPoint, NotLoaded, OutOfRange
from crypto.samplers import entropy

try:
    import rbcl
except OSError as error:
    raise NotLoaded from error

__all__ = [
    "POINT_BYTES",
    "SCALAR_BYTES",
    "UNIFORM_BYTES",
    "Spread",
    "check",
    "from_uniform",
    "inverses",
    "multiply",
    "multiply_scalars",
    "random_scalars",
    "reduced",
]

# rbcl writes its copy of libsodium to a temporary file at every import and leaves it there. Once
# loaded it is not needed (where the system refuses to remove it, it stays).
with contextlib.suppress(OSError):
    Path(rbcl.rbcl._sodium._name).unlink(missing_ok=True)

POINT_BYTES: Final = 32
SCALAR_BYTES: Final = 32
UNIFORM_BYTES: Final = 64
"""Bytes from which a point or a scalar is made so that it is uniform."""

_IDENTITY: Final = bytes(POINT_BYTES)
_ZERO: Final = bytes(SCALAR_BYTES)
_ONE: Final = b"\1" + bytes(SCALAR_BYTES - 1)
_CHUNK: Final = 64  # points a worker takes at a time: some 4 ms, so a client's batch is several

Work = Callable[[slice], list[bytes]]
Spread = Callable[[Work, Iterable[slice]], Iterable[list[bytes]]]
"""How a batch is worked through: the builtin `map`, or that of a pool of threads.

libsodium runs beside Python's lock, so threads use all cores, and secrets stay in the process.
"""


def multiply(
    scalars: bytes | Sequence[bytes], points: Sequence[bytes], spread: Spread = map
) -> list[bytes]:
    """Return each point times its scalar, or times the one scalar that is given.

    Args:
        scalars: one of 32 bytes for all points, or as many as there are points.
        points: n encodings of 32 bytes.
        spread: see `Spread`.

    Raises:
        InvalidPoint: one is no canonical encoding, or the identity is one of them or comes out.
        OutOfRange: not one scalar for each point.
    """
    one = scalars if isinstance(scalars, bytes) else None
    if one is None and len(scalars) != len(points):
        raise OutOfRange("Each point is multiplied by a scalar of its own.")

    def work(part: slice) -> list[bytes]:
        factors = [one] * len(points[part]) if one is not None else scalars[part]
        for point in points[part]:
            _check_form(point)
        try:
            return list(map(rbcl.crypto_scalarmult_ristretto255, factors, points[part]))
        except (RuntimeError, ValueError, TypeError):
            raise InvalidPoint from None

    return _spread(work, len(points), spread)


def check(points: Sequence[bytes], spread: Spread = map) -> None:
    """Raise InvalidPoint if one of n encodings is not canonical, or is the identity's."""

    def work(part: slice) -> list[bytes]:
        for point in points[part]:
            _check(point)
        return []

    _spread(work, len(points), spread)


def _check_form(point: bytes) -> None:
    """Refuse what libsodium would take although it is no canonical encoding."""
    if len(point) != POINT_BYTES or point[-1] & 0x80:
        raise InvalidPoint


def _check(point: bytes) -> None:
    _check_form(point)
    if point == _IDENTITY:
        raise InvalidPoint
    if not rbcl.crypto_core_ristretto255_is_valid_point(point):
        raise InvalidPoint


def from_uniform(uniform: Sequence[bytes], spread: Spread = map) -> list[bytes]:
    """Map uniform strings of 64 bytes to uniform points (RFC 9496 section 4.3.4).

    Raises:
        InvalidPoint: a string came out as the identity, which nobody can make happen.
    """

    def work(part: slice) -> list[bytes]:
        points = list(map(rbcl.crypto_core_ristretto255_from_hash, uniform[part]))
        if _IDENTITY in points:
            raise InvalidPoint
        return points

    return _spread(work, len(uniform), spread)


def _spread(work: Work, count: int, spread: Spread) -> list[bytes]:
    parts = [slice(start, start + _CHUNK) for start in range(0, count, _CHUNK)]
    return list(chain.from_iterable(spread(work, parts)))


def reduced(uniform: bytes) -> bytes:
    """Return the scalar of 64 uniform bytes; uniform to 2^-259."""
    scalar: bytes = rbcl.crypto_core_ristretto255_scalar_reduce(uniform)
    return scalar


def random_scalars(count: int) -> list[bytes]:
    """Return `count` scalars from the operating system, uniform and not zero."""
    drawn = entropy(UNIFORM_BYTES * count) if count else b""
    scalars = [reduced(drawn[at : at + UNIFORM_BYTES]) for at in range(0, len(drawn), 64)]
    _refuse_zero(scalars)  # happens with probability 2^-252
    return scalars


def inverses(scalars: Sequence[bytes]) -> list[bytes]:
    """Return 1/s for each scalar, with one inversion for all (Montgomery's trick).

    Three multiplications each, all of libsodium, in place of an inversion of 40 microseconds.

    Raises:
        InvalidKey: one of them is zero.
    """
    if not scalars:
        return []
    _refuse_zero(scalars)
    times = rbcl.crypto_core_ristretto255_scalar_mul
    products = list(accumulate(scalars, times, initial=_ONE))  # of all before each
    rest: bytes = rbcl.crypto_core_ristretto255_scalar_invert(products.pop())
    found = []
    for scalar, before in zip(reversed(scalars), reversed(products), strict=True):
        found.append(times(rest, before))
        rest = times(rest, scalar)
    return found[::-1]


def multiply_scalars(one: bytes, other: bytes) -> bytes:
    """Return the product of two scalars; raises InvalidKey if one of them is zero."""
    _refuse_zero([one, other])
    product: bytes = rbcl.crypto_core_ristretto255_scalar_mul(one, other)
    return product


def _refuse_zero(scalars: Iterable[bytes]) -> None:
    for scalar in scalars:
        if len(scalar) != SCALAR_BYTES or hmac.compare_digest(scalar, _ZERO):
            raise InvalidKey("A scalar has 32 bytes and is not zero.")
