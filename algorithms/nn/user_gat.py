"""Attention over what one user rated: FedPerGNN's GAT; see `algorithms.nn.modules.user_gat`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithms.nn._shared.layouts import Layout, Shapes
from algorithms.nn._shared.rating_layouts import Inputs, Rows, star, star_rows
from algorithms.tasks import Kind

if TYPE_CHECKING:
    from algorithms.nn._shared.ratings import RatingModel

NAME = "user_gat"
TASK: Kind = "rating"
ALONE = True


def _layer(hidden: int) -> Shapes:
    square = tuple((name, (hidden, hidden)) for name in ("around", "asking", "asked", "value"))
    return (*square, ("plain", (1,)))


def layout(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> Layout:
    """A star's, see `algorithms.nn._shared.stars`; its layer has W, A, B, V and g."""
    return star(items, hidden, _layer(hidden))


def build(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> RatingModel:
    """A star of width `hidden`, uninitialised; `users`, `layers` and `inputs` are unused."""
    from algorithms.nn.modules import user_gat as made

    return made.build(users, items, hidden, layers, dropout, inputs)


def rows(own: tuple[Rows, Rows], sizes: tuple[int, int], hidden: int) -> Rows | None:
    """See `star_rows`."""
    return star_rows(own, sizes, hidden, _layer(hidden))
