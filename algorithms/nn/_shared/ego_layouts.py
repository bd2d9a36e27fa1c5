"""What a plan knows of networks in two parts, see `algorithms.nn._shared.egos`."""

from __future__ import annotations

from collections.abc import Iterable

from algorithms.nn._shared.layouts import Layout, Shapes

__all__ = ["ego_net", "levels"]


def levels(hops: int, fan_out: int) -> tuple[int, ...]:
    """Return how many positions each level of an ego-graph has: 1, n, n^2, ..., n^k."""
    return tuple(fan_out**level for level in range(hops + 1))


def ego_net(layers: Iterable[Shapes], hidden: int, classes: int) -> Layout:
    """Return the layout of an `EgoNet`: its layers, then a classifier without bias."""
    base = tuple(one for layer in layers for one in layer)
    return Layout(base, (("head.weight", (hidden, classes)),))
