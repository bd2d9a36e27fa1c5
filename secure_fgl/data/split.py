"""Training, validation and test nodes, drawn over the whole graph before it is shared out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secure_fgl.data.graph import Graph, Masks

__all__ = ["split_masks"]


def split_masks(
    graph: Graph,
    shares: tuple[float, float, float] = (0.2, 0.4, 0.4),
    *,
    rng: np.random.Generator,
) -> Masks:
    """Stratified masks over the labelled nodes; an unlabelled node is in none.

    Drawing before partitioning gives a node the same role at every client that holds it, so
    nobody's test node trains somewhere else. The labelled nodes are lined up class by class, in
    random order within a class, and roles are dealt along the line at even distances: each class
    gets its share of every role to within two nodes, and the training nodes are floor(share x
    labelled) exactly, which is what `spec_of` promises as an upper bound.

    Args:
        graph: the whole graph.
        shares: of training, validation and test, positive or zero, summing to 1.
        rng: source of the random order.

    Raises:
        ValueError: the shares are negative, do not sum to 1, or leave no training share.
    """
    train_share, val_share, test_share = shares
    if min(shares) < 0.0 or train_share == 0.0 or abs(sum(shares) - 1.0) > 1e-9:
        raise ValueError(
            "shares of train, val and test must be 0 or more, sum to 1, and train above 0"
        )
    line = rng.permutation(np.flatnonzero(graph.y >= 0))
    line = line[np.argsort(graph.y[line], kind="stable")]
    to_train = _evenly(len(line), train_share)
    rest = line[~to_train]
    held_out = val_share + test_share
    to_val = _evenly(len(rest), val_share / held_out if held_out else 0.0)

    return Masks(
        _mask(graph.nodes, line[to_train]),
        _mask(graph.nodes, rest[to_val]),
        _mask(graph.nodes, rest[~to_val]),
    )


def _mask(nodes: int, members: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    mask = np.zeros(nodes, dtype=bool)
    mask[members] = True
    return mask


def _evenly(count: int, share: float) -> npt.NDArray[np.bool_]:
    """Mark floor(share x count) places of a line at even distances, bool (count,)."""
    reached = np.floor(np.arange(count + 1) * share + 1e-9)  # 1e-9: 5 x 0.2 is to reach 1
    marked: npt.NDArray[np.bool_] = np.diff(reached) > 0
    return marked
