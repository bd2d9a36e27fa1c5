"""The normalised cut: Shi and Malik, "Normalized cuts and image segmentation" (PAMI 22, 2000).

Clients are put in the order of the second eigenvector of D^-1/2 W D^-1/2, and of all places where
that order can be cut the one with the smallest cut(A, B) (1 / vol A + 1 / vol B) is taken, compared
as exact fractions; which sign the vector has plays no part.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.int64]
Side = npt.NDArray[np.bool_]


def normalised(weights: Weights, least: int) -> Side | None:
    """Return one side of the normalised cut, the first of several; None if none fits.

    Args:
        weights: (K, K), symmetric, not negative, zeros on the diagonal; K at least 2.
        least: clients of either side at least.
    """
    count = len(weights)
    degrees = weights.sum(axis=1)
    scale = 1.0 / np.sqrt(np.maximum(degrees, 1))
    second = np.linalg.eigh(weights * np.outer(scale, scale))[1][:, -2] * scale
    # Rounded, so that what is equal but for the last bits keeps the order of the rows.
    rounded = np.round(second / max(float(np.abs(second).max()), 1e-300), 9)
    order = np.argsort(rounded, kind="stable")
    rows, volumes = weights[np.ix_(order, order)], np.cumsum(degrees[order])
    best: tuple[Fraction, int] | None = None
    for place in range(least, count - least + 1):
        here, all_of_it = int(volumes[place - 1]), int(volumes[-1])
        product = here * (all_of_it - here)
        between = int(rows[:place, place:].sum())
        cost = Fraction(between, product) if product else Fraction(0)
        if best is None or cost < best[0]:
            best = cost, place
    if best is None:
        return None
    side = np.zeros(count, dtype=np.bool_)
    side[order[: best[1]]] = True
    return side
