"""Edges between clients, by number: which of them each client knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from secure_fgl.data.records import ClientGraph, Graph

__all__ = ["of_all", "of_homes"]


def of_homes(parts: list[ClientGraph], whole: Graph) -> list[ClientGraph]:
    """Return the parts with their edges to other clients' nodes.

    A node that several clients hold belongs to one of them, these in turn by its number. An edge is
    between two clients if its ends belong to two of which neither holds the other's end.
    """
    held = np.zeros((len(parts), whole.nodes), dtype=bool)
    for client, part in enumerate(parts):
        held[client, part.nodes] = True
    home, turn = np.full(whole.nodes, -1), np.arange(whole.nodes) % np.maximum(held.sum(axis=0), 1)
    for client, here in enumerate(held):
        home[here & (turn == 0)] = client
        turn[here] -= 1
    both = np.hstack([whole.edges, whole.edges[::-1]])  # each end once as one's own
    one, other = home[both]
    apart = (one != other) & (one >= 0) & (other >= 0)
    apart &= ~held[one, both[1]] & ~held[other, both[0]]
    found = []
    for client, part in enumerate(parts):
        here, there = both[:, apart & (one == client)]
        beyond = np.stack([np.searchsorted(part.nodes, here), there])
        found.append(replace(part, beyond=beyond[:, np.lexsort(beyond[::-1])]))
    return found


def of_all(parts: list[ClientGraph], whole: Graph) -> list[ClientGraph]:
    """Return the parts with their edges to nodes that others hold and they do not.

    Of a node that several hold the first one tells its terms, so that sums count it once.
    """
    teller = np.full(whole.nodes, -1, dtype=np.int64)
    for place, part in reversed(list(enumerate(parts))):
        teller[part.nodes] = place
    both = np.hstack([whole.edges, whole.edges[::-1]])  # each end once as one's own
    shared = sum(len(part.nodes) for part in parts) > int((teller >= 0).sum())
    found = []
    for place, part in enumerate(parts):
        local = np.full(whole.nodes, -1, dtype=np.int64)
        local[part.nodes] = np.arange(len(part.nodes))
        crossing = both[:, (local[both[0]] >= 0) & (local[both[1]] < 0) & (teller[both[1]] >= 0)]
        beyond = np.stack([local[crossing[0]], crossing[1]])
        tells = teller[part.nodes] == place if shared else None
        found.append(replace(part, beyond=beyond[:, np.lexsort(beyond[::-1])], tells=tells))
    return found
