"""A client's neighbours where clients read sums of their own, and how many a sum rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Literal, get_args

# --- Graphs between clients, and the weights with which neighbours' vectors are mixed ---
#
# Weights are Metropolis': W_ij = 1 / (1 + max(d_i, d_j)) for neighbours i and j with d_i and d_j
# neighbours, W_ii what is left of 1 (Xiao and Boyd, Systems & Control Letters 2004). So W is
# symmetric and doubly stochastic on every graph. They are kept as whole numbers over one
# denominator.

Kind = Literal["ring", "regular", "complete", "edges"]
KINDS = get_args(Kind)
Edge = tuple[int, int]


@dataclass(frozen=True)
class Topology:
    """Who is whose neighbour, before it is known how many clients there are.

    Attributes:
        kind: ``ring``; ``regular``: everybody has `degree` neighbours, the nearest ones on a ring
            (an odd degree takes the client across besides); ``complete``; ``edges``: as listed.
        degree: of a regular graph.
        edges: of listed ones, pairs of places in the sorted order of clients, from 0 on.
    """

    kind: Kind = "complete"
    degree: int = 0
    edges: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no description of a graph; raises ValueError."""
        if self.kind not in KINDS:
            raise ValueError(f"there is no topology {self.kind!r}; known: {', '.join(KINDS)}")
        if (self.kind == "regular") != bool(self.degree) or self.degree < 0:
            raise ValueError("a topology has a degree, 2 or more, just if it is 'regular'")
        if (self.kind == "edges") != bool(self.edges):
            raise ValueError("a topology lists edges just if it is 'edges'")


@dataclass(frozen=True)
class Weights:
    """W as whole numbers.

    Attributes:
        whole: the denominator.
        rows: by client, its neighbours' places with `whole` times W_ij.
        own: by client, `whole` times W_ii.
    """

    whole: int
    rows: tuple[dict[int, int], ...]
    own: tuple[int, ...]


def edges_of(topology: Topology, count: int) -> tuple[Edge, ...]:
    """Return the edges among `count` clients, each once with the smaller place first, sorted.

    Raises:
        ValueError: there is no such graph of so many clients, or it falls into pieces.
    """
    if count < 3:
        raise ValueError("a topology needs three clients: with two, each reads the other's model")
    if topology.kind == "edges":
        found = {(min(edge), max(edge)) for edge in topology.edges}
        if len(found) < len(topology.edges) or any(a == b for a, b in found):
            raise ValueError("an edge of the topology is listed twice, or joins a client to itself")
        if any(not 0 <= place < count for edge in found for place in edge):
            raise ValueError(f"an edge of the topology names no place from 0 to {count - 1}")
    else:
        found = _circulant(_degree(topology, count), count)
    if not connected(tuple(found), count):
        raise ValueError("the topology falls into pieces that never hear of each other")
    return tuple(sorted(found))


def _degree(topology: Topology, count: int) -> int:
    if topology.kind == "regular":
        return topology.degree
    return 2 if topology.kind == "ring" else count - 1


def _circulant(degree: int, count: int) -> set[Edge]:
    """Return the edges of the graph that joins every client to the nearest ones on a ring."""
    if not 2 <= degree < count or degree * count % 2:
        raise ValueError(
            f"no graph of {count} clients has {degree} neighbours each; choose a degree from 2 to "
            f"{count - 1}, an even one where the number of clients is odd"
        )
    steps = [*range(1, degree // 2 + 1), *([count // 2] if degree % 2 else [])]
    pairs = ((i, (i + step) % count) for i in range(count) for step in steps)
    return {(min(pair), max(pair)) for pair in pairs}


def connected(edges: tuple[Edge, ...], count: int) -> bool:
    """Tell whether every client is reached from every other one."""
    reached, waiting = {0}, [0]
    while waiting:
        place = waiting.pop()
        beside = {b if a == place else a for a, b in edges if place in (a, b)}
        waiting += sorted(beside - reached)
        reached |= beside
    return len(reached) == count


def metropolis(edges: tuple[Edge, ...], count: int) -> Weights:
    """Return the weights of a graph of `count` clients; see the module's head."""
    degrees = [0] * count
    for edge in edges:
        for place in edge:
            degrees[place] += 1
    shares = {edge: 1 + max(degrees[place] for place in edge) for edge in edges}
    whole = math.lcm(*shares.values())
    rows: tuple[dict[int, int], ...] = tuple({} for _ in range(count))
    for (a, b), share in shares.items():
        rows[a][b] = rows[b][a] = whole // share
    return Weights(whole, rows, tuple(whole - sum(row.values()) for row in rows))


# --- On how few clients a combination of the sums rests that some clients read (O5, ADR 0053) ---
#
# Receivers that work together know their own vectors, take them out of the sums that they read, and
# may combine what is left with any weights. A combination that rests on few others tells about
# them.
#
# Every combination is looked at, by this: the ones that rest on as few as possible vanish on as
# many others as possible. What a combination gives another client depends on that client's column
# alone, the shares with which it enters the receivers' sums, and columns that point the same way
# vanish together. With rank r a combination that is not nothing vanishes on columns of rank r - 1
# at most, and is then fixed up to its size on all the others. So one for each choice of r - 1
# directions suffices. Arithmetic is exact.
#
# Vectors are whole numbers and so are their shares, and a sum is read exactly. So a combination is
# also known modulo any number, and there it rests on those alone whose factor that number does not
# divide: of 5 a + 6 b + 6 c the receiver reads a modulo 6. Modulo a prime, too, the ones that rest
# on as few as possible vanish on r - 1 columns, which then are independent over the rationals; so
# they are what the combinations above leave, divided by their greatest common divisor.

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
