"""What a plan knows of rating models: shapes of parameters, and places of rows in a flat vector."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from algorithms.nn._shared.layouts import Layout, Shapes, entries

__all__ = [
    "BUCKETS",
    "MEAN",
    "Inputs",
    "Rows",
    "Scale",
    "side",
    "side_rows",
    "star",
    "star_rows",
    "width",
]

Inputs = Literal["constant", "degree"]
"""What a graph model is told of a user or an item: nothing, or how many ratings it trains on."""

Rows = npt.NDArray[np.int64]
"""Places in a flat vector, shape (k,)."""

BUCKETS = 16
"""Degrees 0, 1, 2 to 3, 4 to 7, … and from 2^14 on in one bucket."""

MEAN: Shapes = (("mean.deviation", (1,)),)
"""The parameter of `ratings.Mean`."""


class Scale(NamedTuple):
    """Attributes: users, items: how many there are; lowest, highest: of the public scale."""

    users: int
    items: int
    lowest: float
    highest: float


def width(kind: Inputs) -> int:
    """Number of columns of `Bipartite.inputs`.

    Raises:
        ValueError: no such kind.
    """
    if kind not in get_args(Inputs):
        raise ValueError(
            f"no inputs are called {kind!r}; known are {' and '.join(get_args(Inputs))}"
        )
    return 1 if kind == "constant" else BUCKETS + 1


def side(name: str, count: int, hidden: int) -> Shapes:
    """Return the parameters of `ratings.Side`; `name` ends in a dot."""
    return ((f"{name}table", (count, hidden)), (f"{name}bias", (count,)))


def side_rows(own: Rows, size: int, hidden: int) -> Rows:
    """Places of some users' (or items') vectors and biases in a flat `Side` of `size`."""
    table = own[:, None] * hidden + np.arange(hidden)
    return np.concatenate([table.ravel(), size * hidden + own])


def star(items: int, hidden: int, layer: Shapes) -> Layout:
    """Return the layout of `stars.Star`; `layer` holds what its layer has, without a prefix."""
    inner = tuple((f"layer.{name}", shape) for name, shape in layer)
    return Layout((*side("items.", items, hidden), *MEAN, *inner), side("head.", 1, hidden))


def star_rows(own: tuple[Rows, Rows], sizes: tuple[int, int], hidden: int, layer: Shapes) -> Rows:
    """Places of Q and b of the site's own items, and of everything behind them.

    See `RatingFile.rows`; the user's part is the same place at every site.
    """
    after = sizes[1] * (hidden + 1)
    rest = np.arange(after, after + 1 + entries(layer) + hidden + 1)
    return np.concatenate([side_rows(own[1], sizes[1], hidden), rest])
