"""The cut of average linkage (Sokal and Michener, 1958), on 1 - cosine as the distance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.int64]
Side = npt.NDArray[np.bool_]
_FARTHEST = 1 << 15  # two opposite directions, in steps of 2^-14


def agglomerative(weights: Weights, least: int) -> Side | None:
    """Return a branch of the tree that splits off highest and fits; None if none does.

    Args:
        weights: (K, K), symmetric, not negative, zeros on the diagonal; K at least 2.
        least: clients of either side at least.
    """
    from scipy.cluster.hierarchy import linkage

    count = len(weights)
    upper = np.triu_indices(count, 1)
    tree = linkage((_FARTHEST - weights[upper]).astype(np.float64), "average")
    leaves: list[Side] = [np.eye(count, dtype=np.bool_)[row] for row in range(count)]
    for one, other in tree[:, :2].astype(int):
        leaves.append(leaves[one] | leaves[other])
    for node in tree[::-1, :2].astype(int):
        for branch in node:
            if least <= int(leaves[branch].sum()) <= count - least:
                found: Side = leaves[int(branch)]
                return found
    return None
