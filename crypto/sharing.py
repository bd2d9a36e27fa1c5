"""Splitting secrets so that any `threshold` holders rebuild them and fewer learn nothing.

Shamir, "How to share a secret", CACM 22(11), 1979, over the prime 2^255 - 19. A share is the value
at x = holder index + 1 of a random polynomial of degree threshold - 1 whose value at 0 is the
secret; it is as long as the secret, 32 bytes, little-endian.

A secret must lie below the prime. Raw 32-byte strings do not survive: half of them are 2^255 - 19
or more and would come back as another string, which as an X25519 key is another key even after
clamping (O7). Share a `new_seed` and derive keys from it.

Python's integers do not take constant time: split and combine only where nobody measures.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from crypto.errors import InvalidKey, OutOfRange
from crypto.samplers import entropy

__all__ = ["MAX_HOLDERS", "PRIME", "SHARE_BYTES", "combine", "new_seed", "split"]

PRIME: Final = 2**255 - 19
SHARE_BYTES: Final = 32
MAX_HOLDERS: Final = 1 << 20
_TOP: Final = (1 << 255) - 1
_STEPS: Final = 32  # of Horner's rule between two reductions: more make numbers long, fewer cost


def new_seed() -> bytes:
    """Return a secret that can be shared: 32 bytes little-endian, uniform below the prime."""
    return _raw(next(_elements(1)))


def split(secrets: Sequence[bytes], threshold: int, holders: int) -> list[list[bytes]]:
    """Return one row of shares per holder, `[holder][secret]`, 32 bytes each.

    Args:
        secrets: 32-byte little-endian numbers below 2^255 - 19, each split by itself.
        threshold: how many holders rebuild a secret, 2 … holders.
        holders: how many rows are made; row i belongs to holder index i.

    Raises:
        OutOfRange: a secret that is not below the prime, or an impossible threshold.
    """
    if not 2 <= threshold <= holders <= MAX_HOLDERS:
        raise OutOfRange("A threshold lies between 2 and the number of holders.")
    values = [int.from_bytes(secret, "little") for secret in secrets]
    if any(len(secret) != SHARE_BYTES for secret in secrets) or any(v >= PRIME for v in values):
        raise OutOfRange("A shared secret has 32 bytes and lies below 2^255 - 19; see new_seed.")
    # The leading coefficient may be zero: a polynomial of exact degree would exclude secrets.
    polynomials = [[*_elements(threshold - 1), value] for value in values]
    if not polynomials:
        return [[] for _ in range(holders)]
    width = SHARE_BYTES + _STEPS * holders.bit_length() // 8 + 1
    columns = [_packed(column, width) for column in zip(*polynomials, strict=True)]
    return [list(map(_raw, _at(columns, len(values), width, x))) for x in range(1, holders + 1)]


def combine(shares: Mapping[int, Sequence[bytes]], threshold: int) -> list[bytes]:
    """Return the secrets that `threshold` holders' rows of shares determine.

    Args:
        shares: rows by holder index, as `split` made them; the `threshold` lowest indices rebuild,
            every further row must agree with them.
        threshold: the one of `split`; another gives other secrets, which nothing here can notice.

    Raises:
        OutOfRange: fewer rows than the threshold, or an index that no holder has.
        InvalidKey: a malformed share, rows of unequal length, or rows that do not belong together.
    """
    if threshold < 2 or len(shares) < threshold:
        raise OutOfRange("Fewer shares than the threshold do not rebuild a secret.")
    order = sorted(shares)
    if order[0] < 0 or order[-1] >= MAX_HOLDERS:
        raise OutOfRange("A share belongs to no possible holder.")
    rows = [[_number(share) for share in shares[holder]] for holder in order]
    if len({len(row) for row in rows}) != 1:
        raise InvalidKey("Every holder hands in one share per secret.")
    points = tuple(holder + 1 for holder in order)
    few, used = points[:threshold], rows[:threshold]
    if len(points) > threshold:
        # Two polynomials, through all rows and through the first: unless they are one and the same,
        # they differ at a random place but for a chance below 2^-230.
        place = next(_elements(1))
        whole = _interpolated(rows, _weights(points, place))
        part = _interpolated(used, _weights(few, place))
        if not hmac.compare_digest(b"".join(map(_raw, whole)), b"".join(map(_raw, part))):
            raise InvalidKey("The shares do not lie on one polynomial; a holder altered its own.")
    return [_raw(value) for value in _interpolated(used, _weights(few, 0))]


def _elements(count: int) -> Iterator[int]:
    """Yield `count` numbers uniform below the prime: 255 random bits, rejected from there on."""
    while count > 0:
        raw = entropy(SHARE_BYTES * count)
        for start in range(0, len(raw), SHARE_BYTES):
            value = int.from_bytes(raw[start : start + SHARE_BYTES], "little") & _TOP
            if value < PRIME:
                count -= 1
                yield value


def _at(columns: Sequence[int], count: int, width: int, x: int) -> list[int]:
    """Return the values of all polynomials at x, by Horner's rule on all of them at once.

    Args:
        columns: their coefficients of each power, packed, from the highest to the secrets.
        count: how many polynomials.
        width: bytes of a place. In n steps a value below 2^255 stays below 2^255 (x + 1)^n, and
            so no value grows out of its place.
        x: from 1 to the number of holders.
    """
    values = [0] * count
    for start in range(0, len(columns), _STEPS):
        packed = _packed(values, width)
        for column in columns[start : start + _STEPS]:
            packed = packed * x + column
        raw = packed.to_bytes(width * count, "little")
        places = (raw[place : place + width] for place in range(0, len(raw), width))
        values = [int.from_bytes(place, "little") % PRIME for place in places]
    return values


def _packed(values: Sequence[int], width: int) -> int:
    """Return one number that holds each value in `width` bytes, the first one lowest."""
    return int.from_bytes(b"".join(value.to_bytes(width, "little") for value in values), "little")


def _weights(points: tuple[int, ...], at: int) -> list[int]:
    """Return Lagrange's coefficients: a polynomial's value `at` is their product with its values.

    In barycentric form (Berrut and Trefethen, SIAM Review 46(3), 2004): what depends on the points
    alone is kept, since all secrets of one set of holders share it.
    """
    away = [(at - x) % PRIME for x in points]
    whole = 1
    for factor in away:
        whole = whole * factor % PRIME
    near, fixed = _inverses(away), _barycentric(points)
    return [whole * one % PRIME * other % PRIME for one, other in zip(near, fixed, strict=True)]


@lru_cache(maxsize=256)
def _barycentric(points: tuple[int, ...]) -> tuple[int, ...]:
    # Points are public and small: their differences multiply as exact integers, reduced once.
    return tuple(_inverses([math.prod(x - y for y in points if y != x) for x in points]))


def _inverses(values: Sequence[int]) -> list[int]:
    """Invert all values at the price of one inversion (Montgomery 1987)."""
    before = [1]
    for value in values:
        before.append(before[-1] * value % PRIME)
    inverse, found = pow(before[-1], -1, PRIME), [0] * len(values)
    for index in reversed(range(len(values))):
        found[index] = inverse * before[index] % PRIME
        inverse = inverse * values[index] % PRIME
    return found


def _interpolated(rows: Sequence[Sequence[int]], weights: Sequence[int]) -> list[int]:
    columns = zip(*rows, strict=True)
    return [sum(map(int.__mul__, weights, column)) % PRIME for column in columns]


def _number(share: bytes) -> int:
    value = int.from_bytes(share, "little")
    if len(share) != SHARE_BYTES or value >= PRIME:
        raise InvalidKey("A share has 32 bytes and lies below 2^255 - 19.")
    return value


def _raw(value: int) -> bytes:
    return value.to_bytes(SHARE_BYTES, "little")
