"""Edges as sites write them made edges as records hold them: each pair once, no self-loops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secure_fgl.data.own.tally import Tally

__all__ = ["undirected"]


def undirected(
    ends: npt.NDArray[np.int64], nodes: int, tally: Tally | None = None
) -> npt.NDArray[np.int64]:
    """Each undirected pair once with u < v, in ascending order, int64 (2, m).

    Args:
        ends: int64 (2, M), node numbers below `nodes`, in any direction, repeated or not.
        nodes: number of nodes.
        tally: counts self-loops, repeats and pairs given in both directions, if it is wanted.
    """
    loops = ends[0] == ends[1]
    kept = ends[:, ~loops]
    both = np.unique(np.sort(kept, axis=0).T @ np.array([max(nodes, 1), 1]))
    if tally is not None:
        directed = len(np.unique(kept[0] * max(nodes, 1) + kept[1]))
        tally.self_loops += int(loops.sum())
        tally.repeated_edges += kept.shape[1] - directed
        tally.both_directions += directed - len(both)
    return np.stack(np.divmod(both, max(nodes, 1))).astype(np.int64)
