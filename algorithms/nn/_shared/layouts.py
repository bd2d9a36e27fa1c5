"""What a model says of itself before torch is loaded: names and shapes of its parameters.

A plan needs to know how many numbers travel, and nothing of how they are computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Layout", "Shapes", "Weighing", "affine", "entries", "sage", "stacked"]

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


def stacked(layers: Iterable[Shapes]) -> Layout:
    """Return the layout of a `Stack` of layers, the last of which is the head."""
    *below, head = layers
    return Layout(tuple(one for layer in below for one in layer), head, stack=True)
