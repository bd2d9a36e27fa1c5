"""Ego-graphs of one fixed shape, sampled from a graph's neighbour lists for all centres at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from algorithms.nn._shared.layouts import levels

__all__ = ["Neighbours", "distinct", "mashed", "sample"]

Numbers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.floating[Any]]


class Neighbours(NamedTuple):
    """Neighbour lists: those of node v are `listed[starts[v]:starts[v + 1]]`.

    Attributes:
        starts: int64 (N + 1,).
        listed: int64 (2 M,), ascending within a list.
    """

    starts: Numbers
    listed: Numbers

    @classmethod
    def of(cls, edges: Numbers, nodes: int) -> Neighbours:
        """From undirected edges, int64 (2, M), each pair once and no self-loops."""
        import scipy.sparse as sp

        rows, columns = np.hstack([edges, edges[::-1]])
        links = sp.csr_array((np.ones(len(rows), bool), (rows, columns)), shape=(nodes, nodes))
        links.sort_indices()
        return cls(links.indptr.astype(np.int64), links.indices.astype(np.int64))


def sample(
    graph: Neighbours, centres: Numbers, hops: int, fan_out: int, rng: np.random.Generator
) -> Numbers:
    """Ego-graphs of the centres, int64 (centres, positions), numbered as in `EgoNet`.

    Each node's `fan_out` children are drawn from its neighbours with replacement (Hamilton et al.,
    NeurIPS 2017); an isolated node's children are the node itself.

    Args:
        graph: neighbour lists.
        centres: int64 (n,), nodes; they stand at position 0.
        hops: k, at least 0.
        fan_out: children of each position, at least 1.
        rng: draws them.
    """
    count = len(centres)
    rings = [np.asarray(centres, dtype=np.int64).reshape(count, 1)]
    for size in levels(hops, fan_out)[1:]:
        parents = rings[-1]
        first = graph.starts[parents]
        degree = graph.starts[parents + 1] - first
        drawn = rng.random((*parents.shape, fan_out)) * degree[..., None]
        place = first[..., None] + drawn.astype(np.int64)  # below the degree: random() is below 1
        alone = np.broadcast_to((degree == 0)[..., None], place.shape)
        children = np.broadcast_to(parents[..., None], place.shape).copy()
        children[~alone] = graph.listed[place[~alone]]
        rings.append(children.reshape(count, size))
    return np.hstack(rings)


def distinct(egos: Numbers) -> int:
    """Return the fewest distinct nodes that stand at one position, of egos (members, positions)."""
    ordered = np.sort(egos, axis=0)
    return int((1 + (np.diff(ordered, axis=0) != 0).sum(axis=0)).min()) if len(egos) else 0


def mashed(table: Rows, index: Numbers) -> Rows:
    """Return one mixture of ego-graphs, (positions, D): at each position its nodes' mean.

    A node that several members bring to one position counts once there, so that no node is more of
    a mixture than another.

    Args:
        table: (N, D), one row a node.
        index: int64 (members, positions), at least one member.
    """
    ordered = np.sort(index, axis=0)
    fresh = np.ones(ordered.shape, dtype=bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    weight = (fresh / fresh.sum(axis=0)).astype(table.dtype)
    found: Rows = np.einsum("mp,mpd->pd", weight, table[ordered])
    return found
