"""Louvain communities on sparse matrices.

Blondel et al., Fast unfolding of communities in large networks, 2008: move nodes between
communities while modularity grows, merge each community into one node, repeat. As in the fast local
move of Traag, Waltman and van Eck (From Louvain to Leiden, 2019, section 2), a node is looked at
again only after one of its neighbours has moved; on coauthor_physics that is about ten times faster
than networkx, which sweeps over all nodes, and modularity agrees to within 0.01.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["communities"]

LEAST_GAIN = 1e-9
"""Gains below this, in edge weights, are rounding: without a floor, ties could swap for ever."""


def communities(
    edges: npt.NDArray[np.int64], nodes: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Community of every node, int64 (N,), numbered from 0; deterministic in `rng`.

    Args:
        edges: int64 (2, M), each undirected pair once, no self-loops.
        nodes: N.
        rng: the order in which nodes are visited.
    """
    import scipy.sparse as sp

    ends = (np.concatenate([edges[0], edges[1]]), np.concatenate([edges[1], edges[0]]))
    weights = sp.csr_array((np.ones(ends[0].size), ends), shape=(nodes, nodes))
    found = np.arange(nodes)
    while True:
        joined = _local_moves(weights, rng)
        count = int(joined.max(initial=-1)) + 1
        if count == weights.shape[0]:
            return found
        found = joined[found]
        gather = sp.csr_array(
            (np.ones(joined.size), (np.arange(joined.size), joined)), shape=(joined.size, count)
        )
        # The diagonal then holds twice the weight inside each community, as degrees need it.
        weights = sp.csr_array(gather.T @ weights @ gather)


def _local_moves(weights: sp.csr_array, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Communities after moving single nodes until no move helps, numbered from 0."""
    size = weights.shape[0]
    # Plain lists: a Python loop reads them several times faster than numpy arrays.
    bounds = weights.indptr.tolist()
    columns, values = weights.indices.tolist(), weights.data.tolist()
    near = [columns[a:b] for a, b in pairwise(bounds)]
    worth = [values[a:b] for a, b in pairwise(bounds)]
    degree = [sum(row) for row in worth]
    total = list(degree)
    twice_m = sum(degree) or 1.0  # a graph without edges has no gains to compare
    community = list(range(size))
    queue = deque(rng.permutation(size).tolist())
    queued = [True] * size
    while queue:
        node = queue.popleft()
        queued[node] = False
        toward: dict[int, float] = {}
        for other, weight in zip(near[node], worth[node], strict=True):
            if other != node:
                there = community[other]
                toward[there] = toward.get(there, 0.0) + weight
        own, pull = community[node], degree[node]
        total[own] -= pull
        best, most = own, toward.get(own, 0.0) - pull * total[own] / twice_m + LEAST_GAIN
        for there, weight in toward.items():
            gain = weight - pull * total[there] / twice_m
            if gain > most:
                best, most = there, gain
        total[best] += pull
        if best != own:
            community[node] = best
            for other in near[node]:
                if not queued[other] and community[other] != best:
                    queued[other] = True
                    queue.append(other)
    return np.unique(community, return_inverse=True)[1].astype(np.int64)
