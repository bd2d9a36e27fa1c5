"""Louvain communities, cut and packed into clients of equal size, then repaired by class.

The partition of FedSage (Zhang et al., Subgraph Federated Learning with Missing Neighbor
Generation, NeurIPS 2021), after the authors' program: communities (Blondel et al., 2008) longer
than floor(N/M) - delta are cut into pieces of that size; pieces go, largest first, to the current
owner, or cyclically to the next one whose size stays below floor(N/M) + delta; an owner that
reached floor(N/M) is closed. Two additions make the rule total where the program would loop or
stop: a piece that fits nowhere is cut to the room of the emptiest open owner, and once all owners
are closed, the fewer than M nodes left go to the smallest owners.

Repair: while an owner has fewer than two nodes of a class and some owner has more than two, the
owner with the most gives its last one. Unlabelled nodes take no part in the repair.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from secure_fgl.data.partitions._shared import communities
from secure_fgl.data.records import Graph

__all__ = ["EVEN", "KINDS", "assign"]

EVEN = True
KINDS = ("node",)

Nodes = npt.NDArray[np.int64]

ENOUGH = 2
"""Nodes of a class that the repair wants at every owner (FedSage's program)."""


def assign(
    graph: Graph, clients: int, rng: np.random.Generator, *, delta: int = 20
) -> npt.NDArray[np.int64]:
    """Owner of every node, int64 (N,); deterministic in `rng`.

    Args:
        graph: the whole graph; edges and labels are used, features are not.
        clients: M.
        rng: the order in which Louvain visits nodes.
        delta: tolerance of the sizes, in nodes; 20 in FedSage.

    Raises:
        ValueError: delta is below 1, or the graph is too small: floor(N/M) must exceed delta.
    """
    share = graph.nodes // clients
    if delta < 1 or share <= delta:
        raise ValueError(
            f"cannot balance {graph.nodes} nodes over {clients} clients within {delta}: delta "
            "must be 1 or more and below the nodes per client; lower delta or ask for fewer clients"
        )
    pieces = _pieces(_communities(graph, rng), share - delta)
    owners = _pack(pieces, clients, share, delta)
    owner = np.empty(graph.nodes, dtype=np.int64)
    for number, members in enumerate(owners):
        owner[members] = number
    _repair(owner, graph, clients)
    return owner


def _communities(graph: Graph, rng: np.random.Generator) -> list[Nodes]:
    """Louvain communities, each ascending, in the order of their first nodes."""
    found = communities(graph.edges, graph.nodes, rng)
    members = np.split(np.argsort(found, kind="stable"), np.cumsum(np.bincount(found))[:-1])
    return sorted(members, key=lambda nodes: int(nodes[0]))


def _pieces(communities: list[Nodes], longest: int) -> list[Nodes]:
    """Communities cut to at most `longest` nodes, largest first."""
    cut = [
        nodes[start : start + longest]
        for nodes in communities
        for start in range(0, len(nodes), longest)
    ]
    return sorted(cut, key=len, reverse=True)


def _pack(pieces: list[Nodes], clients: int, share: int, delta: int) -> list[Nodes]:
    """Pieces placed first-fit from the current owner on; one array of nodes an owner."""
    held: list[list[Nodes]] = [[] for _ in range(clients)]
    size = [0] * clients
    open_owners = list(range(clients))
    at = 0
    waiting = deque(pieces)
    while waiting:
        piece = waiting.popleft()
        while open_owners and size[open_owners[at]] >= share:
            open_owners.pop(at)
            at = at % len(open_owners) if open_owners else 0
        if not open_owners:
            for node in piece:
                smallest = int(np.argmin(size))
                held[smallest].append(np.array([node]))
                size[smallest] += 1
            continue
        turns = range(at, at + len(open_owners))
        fits = [
            turn % len(open_owners)
            for turn in turns
            if size[open_owners[turn % len(open_owners)]] + len(piece) < share + delta
        ]
        if not fits:
            room = min(range(len(open_owners)), key=lambda index: size[open_owners[index]])
            space = share + delta - 1 - size[open_owners[room]]
            waiting.appendleft(piece[space:])
            piece, fits = piece[:space], [room]
        at = fits[0]
        held[open_owners[at]].append(piece)
        size[open_owners[at]] += len(piece)
    return [np.concatenate(parts) for parts in held]


def _repair(owner: npt.NDArray[np.int64], graph: Graph, clients: int) -> None:
    """Give every owner two nodes of every class where others can spare them; in place."""
    for label in range(graph.classes):
        of_class = np.flatnonzero(graph.y == label)
        counts = np.bincount(owner[of_class], minlength=clients)
        for poor in range(clients):
            while counts[poor] < ENOUGH < counts.max():
                rich = int(counts.argmax())
                given = of_class[owner[of_class] == rich][-1]
                owner[given] = poor
                counts[rich] -= 1
                counts[poor] += 1
