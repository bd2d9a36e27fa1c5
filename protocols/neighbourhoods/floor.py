"""On how few clients a combination of the sums rests that some clients read (O5, ADR 0053).

Receivers that work together know their own vectors, take them out of the sums that they read, and
may combine what is left with any weights. A combination that rests on few others tells about them.

Every combination is looked at, by this: the ones that rest on as few as possible vanish on as many
others as possible. What a combination gives another client depends on that client's column alone,
the shares with which it enters the receivers' sums, and columns that point the same way vanish
together. With rank r a combination that is not nothing vanishes on columns of rank r - 1 at most,
and is then fixed up to its size on all the others. So one for each choice of r - 1 directions
suffices. Arithmetic is exact.

Vectors are whole numbers and so are their shares, and a sum is read exactly. So a combination is
also known modulo any number, and there it rests on those alone whose factor that number does not
divide: of 5 a + 6 b + 6 c the receiver reads a modulo 6. Modulo a prime, too, the ones that rest on
as few as possible vanish on r - 1 columns, which then are independent over the rationals; so they
are what the combinations above leave, divided by their greatest common divisor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from protocols.neighbourhoods.topology import Weights

__all__ = ["MOST_STEPS", "Thinnest", "thinnest"]

Column = tuple[int, ...]
MOST_STEPS = 200_000
"""Sets of receivers, times choices of directions: half a minute or less."""


@dataclass(frozen=True)
class Thinnest:
    """A combination that rests on as few other clients as any.

    Attributes:
        receivers: places of those who would combine what they read.
        factors: by receiver, how its sum enters.
        others: places of the clients that it rests on.
        modulus: it rests on so few modulo this number; 0: as it is.
    """

    receivers: tuple[int, ...]
    factors: tuple[int, ...]
    others: tuple[int, ...]
    modulus: int = 0


def thinnest(weights: Weights, together: int) -> Thinnest:
    """Return the combination that rests on the fewest, of all that up to `together` receivers have.

    Of equals it is the first, by fewer receivers and then by place.

    Raises:
        ValueError: nobody reads anything, or there are too many combinations to look at.
    """
    count, found = len(weights.rows), None
    sizes = range(1, min(together, count - 1) + 1)
    steps = sum(math.comb(count, size) for size in sizes)
    for size in sizes:
        for receivers in combinations(range(count), size):
            if steps > MOST_STEPS:
                raise ValueError(
                    f"there are too many combinations of what {together} of {count} clients read "
                    "to look at all of them; choose fewer clients or colluders"
                )
            for one in _combinations(weights, receivers):
                steps += 1
                if found is None or len(one.others) < len(found.others):
                    found = one
    if found is None:
        raise ValueError("no client reads a sum of others")
    return found


def _combinations(weights: Weights, receivers: tuple[int, ...]) -> Iterator[Thinnest]:
    """Yield, for one set of receivers, combinations of which one rests on the fewest others."""
    groups = _directions(weights, receivers)
    columns = list(groups)
    rank = len(receivers) - len(_vanishing(columns, len(receivers)))
    for chosen in combinations(columns, rank - 1) if rank else ():
        for factors in _vanishing(chosen, len(receivers)):
            along = {c: sum(f * x for f, x in zip(factors, c, strict=True)) for c in columns}
            enters = {
                place: along[column] * size for column in columns for place, size in groups[column]
            }
            for modulus in _moduli([entry for entry in enters.values() if entry]):
                others = [
                    p for p, entry in enters.items() if (entry % modulus if modulus else entry)
                ]
                yield Thinnest(receivers, factors, tuple(sorted(others)), modulus)


def _moduli(entries: Sequence[int]) -> Iterator[int]:
    """Yield 0, and every modulus under which fewer of these entries are left; none of nothing.

    In place of primes it takes factors that have none in common: each entry is a multiple of such a
    factor, or prime to it.
    """
    if not entries:
        return
    yield 0
    common = math.gcd(*entries)
    found: list[int] = []
    waiting = sorted({abs(entry) // common for entry in entries})
    while waiting:
        entry = waiting.pop()
        shared = next((one for one in found if math.gcd(one, entry) > 1), 0)
        if shared:
            divisor = math.gcd(shared, entry)
            found.remove(shared)
            waiting += [divisor, shared // divisor, entry // divisor]
        elif entry > 1:
            found.append(entry)
    yield from (common * factor for factor in sorted(found))


def _directions(
    weights: Weights, receivers: tuple[int, ...]
) -> dict[Column, list[tuple[int, int]]]:
    """Return the other clients by the direction of their column, primitive whole numbers.

    With each stands how many times as long its column is.
    """
    groups: dict[Column, list[tuple[int, int]]] = {}
    for place in range(len(weights.rows)):
        column = tuple(weights.rows[receiver].get(place, 0) for receiver in receivers)
        if place not in receivers and any(column):
            divisor = math.gcd(*column)
            direction = tuple(entry // divisor for entry in column)
            groups.setdefault(direction, []).append((place, divisor))
    return groups


def _vanishing(columns: Sequence[Column], size: int) -> list[Column]:
    """Return a basis of the factors, whole numbers, under which all these columns vanish."""
    rows = [[Fraction(entry) for entry in column] for column in columns]
    pivots: list[int] = []
    for place in range(size):
        at = len(pivots)
        row = next((r for r in rows[at:] if r[place]), None)
        if row is None:
            continue
        rows.remove(row)
        row = [entry / row[place] for entry in row]
        rows.insert(at, row)
        for number, other in enumerate(rows):
            if number != at and other[place]:
                factor = other[place]
                rows[number] = [x - factor * y for x, y in zip(other, row, strict=True)]
        pivots.append(place)
    found = []
    for free in (place for place in range(size) if place not in pivots):
        vector = [Fraction(int(place == free)) for place in range(size)]
        for number, pivot in enumerate(pivots):
            vector[pivot] = -rows[number][free]
        scale = math.lcm(*(entry.denominator for entry in vector))
        found.append(tuple(int(entry * scale) for entry in vector))
    return found
