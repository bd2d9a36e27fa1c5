"""Graphs between clients, and the weights with which neighbours' vectors are mixed.

Weights are Metropolis': W_ij = 1 / (1 + max(d_i, d_j)) for neighbours i and j with d_i and d_j
neighbours, W_ii what is left of 1 (Xiao and Boyd, Systems & Control Letters 2004). So W is
symmetric and doubly stochastic on every graph. They are kept as whole numbers over one denominator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["KINDS", "Kind", "Topology", "Weights", "connected", "edges_of", "metropolis"]

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
