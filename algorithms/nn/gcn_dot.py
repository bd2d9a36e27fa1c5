"""GCN on the graph of training ratings, and the dot product of two nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn import gcn
from algorithms.nn._shared.layouts import Layout
from algorithms.nn._shared.rating_layouts import MEAN, Inputs, Rows, width
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.ratings import RatingModel

NAME = "gcn_dot"
TASK: Kind = "rating"


def layout(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> Layout:
    """The GCN's parameters by layers, then m; the last layer and m are the head."""
    inner = gcn.layout(width(inputs), hidden, hidden, layers, dropout)
    below, last = (
        tuple((f"encoder.{name}", shape) for name, shape in part)
        for part in (inner.base, inner.head)
    )
    return Layout(below, (*last, *MEAN))


def build(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> RatingModel:
    """GCN with `layers` layers of width `hidden`, uninitialised; `users`, `items` are unused."""
    from algorithms.nn.modules import gcn_dot as made

    return made.build(users, items, hidden, layers, dropout, inputs)


def rows(own: tuple[Rows, Rows], sizes: tuple[int, int], hidden: int) -> Rows | None:
    """None: every site needs all parameters."""
    return None


def plain(module: Any, scale: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain_ratings`."""
    from algorithms.nn.modules import gcn_dot as made

    return made.plain(module, scale)
