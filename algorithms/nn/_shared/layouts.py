"""What a model says of itself before torch is loaded: names and shapes of its parameters.

A plan needs to know how many numbers travel, and nothing of how they are computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

__all__ = [
    "BUCKETS",
    "MEAN",
    "Inputs",
    "Layout",
    "Rows",
    "Scale",
    "Shapes",
    "Weighing",
    "affine",
    "ego_net",
    "entries",
    "levels",
    "sage",
    "side",
    "side_rows",
    "stacked",
    "star",
    "star_rows",
    "width",
    "widths",
]

Weighing = Literal["symmetric", "mean", "mean_or_self", "sum"]
"""How neighbours are weighed, see `algorithms.nn._shared.sparse.propagation`."""

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and shape of each parameter, in the order of the flat vector."""


@dataclass(frozen=True)
class Layout:
    """The parameters of a model, in the order of the flat vector.

    Attributes:
        base: those that come first.
        head: the last layer's, which FedPer keeps at the client (all, of a single layer).
        stack: whether the model is one layer after another, so that it can be cut below its head.
    """

    base: Shapes
    head: Shapes
    stack: bool = False

    @property
    def whole(self) -> Shapes:
        """All parameters."""
        return self.base + self.head

    @property
    def size(self) -> int:
        """Number of entries of the flat vector, d."""
        return entries(self.whole)

    @classmethod
    def of(cls, module: Any, head: Iterable[Any], *, stack: bool) -> Layout:
        """Return the layout of a torch module that was built, with its last parameters."""
        last = {id(parameter) for parameter in head}
        base: list[tuple[str, tuple[int, ...]]] = []
        rest: list[tuple[str, tuple[int, ...]]] = []
        for name, parameter in module.named_parameters():
            (rest if id(parameter) in last else base).append((name, tuple(parameter.shape)))
        return cls(tuple(base), tuple(rest), stack)


def entries(shapes: Shapes) -> int:
    """Return how many numbers some parameters have together."""
    return sum(math.prod(shape) for _, shape in shapes)


def affine(name: str, wide: int, out: int) -> Shapes:
    """Return W (in, out), b of a layer; `name` ends in a dot, or is empty."""
    return ((f"{name}weight", (wide, out)), (f"{name}bias", (out,)))


def sage(name: str, wide: int, out: int) -> Shapes:
    """Return W_own, W_near (in, out), b of a layer of GraphSAGE; `name` ends in a dot."""
    return (
        (f"{name}own", (wide, out)),
        (f"{name}near", (wide, out)),
        (f"{name}bias", (out,)),
    )


def widths(features: int, classes: int, hidden: int, layers: int) -> list[tuple[int, int]]:
    """Return (in, out) of each of some layers: hidden ones, and the last one to the classes."""
    return list(pairwise([features, *[hidden] * (layers - 1), classes]))


def stacked(layers: Iterable[Shapes]) -> Layout:
    """Return the layout of a `Stack` of layers, the last of which is the head."""
    *below, head = layers
    return Layout(tuple(one for layer in below for one in layer), head, stack=True)


def levels(hops: int, fan_out: int) -> tuple[int, ...]:
    """Return how many positions each level of an ego-graph has: 1, n, n^2, ..., n^k."""
    return tuple(fan_out**level for level in range(hops + 1))


def ego_net(layers: Iterable[Shapes], hidden: int, classes: int) -> Layout:
    """Return the layout of an `EgoNet`: its layers, then a classifier without bias."""
    base = tuple(one for layer in layers for one in layer)
    return Layout(base, (("head.weight", (hidden, classes)),))


Inputs = Literal["constant", "degree"]
"""What a graph model is told of a user or an item: nothing, or how many ratings it trains on."""

Rows = npt.NDArray[np.int64]
"""Places in a flat vector, shape (k,)."""

BUCKETS = 16
"""Degrees 0, 1, 2 to 3, 4 to 7, … and from 2^14 on in one bucket."""

MEAN: Shapes = (("mean.deviation", (1,)),)
"""The parameter m of the mean rating, see `ratings.mean_rating`."""


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
    """Return a vector and a bias for each user, or each item; `name` ends in a dot."""
    return ((f"{name}table", (count, hidden)), (f"{name}bias", (count,)))


def side_rows(own: Rows, size: int, hidden: int) -> Rows:
    """Places of some users' (or items') vectors and biases in a flat `side` of `size`."""
    table = own[:, None] * hidden + np.arange(hidden)
    return np.concatenate([table.ravel(), size * hidden + own])


def star(items: int, hidden: int, layer: Shapes) -> Layout:
    """Return the layout of `ratings.Star`; `layer` holds what its layer has, without a prefix."""
    inner = tuple((f"layer.{name}", shape) for name, shape in layer)
    return Layout((*side("items.", items, hidden), *MEAN, *inner), side("head.", 1, hidden))


def star_rows(own: tuple[Rows, Rows], sizes: tuple[int, int], hidden: int, layer: Shapes) -> Rows:
    """Places of Q and b of the site's own items, and of everything behind them.

    See `RatingFile.rows`; the user's part is the same place at every site.
    """
    after = sizes[1] * (hidden + 1)
    rest = np.arange(after, after + 1 + entries(layer) + hidden + 1)
    return np.concatenate([side_rows(own[1], sizes[1], hidden), rest])
