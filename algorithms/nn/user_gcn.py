"""The mean over what one user rated: FedPerGNN's GCN, see `Star`.

layer = mean_k s_k (<V q_k, q_j> + g),   k rated by u and k ≠ j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Inputs, Layout, Rows, Shapes, star, star_rows
from algorithms.tasks import Kind

if TYPE_CHECKING:
    from torch import Tensor

    from algorithms.nn._shared.ratings import Star

NAME = "user_gcn"
TASK: Kind = "rating"
ALONE = True


def _layer(hidden: int) -> Shapes:
    """W, V (h, h) and g."""
    square = tuple((name, (hidden, hidden)) for name in ("around", "value"))
    return (*square, ("plain", (1,)))


def layout(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> Layout:
    """See `star`."""
    return star(items, hidden, _layer(hidden))


def build(users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs) -> Star:
    """A star of width `hidden`, uninitialised; `users`, `layers` and `inputs` are unused."""
    from algorithms.nn._shared.ratings import Star

    shapes = layout(users, items, hidden, layers, dropout, inputs)
    return Star(shapes, _told, dropout)


def rows(own: tuple[Rows, Rows], sizes: tuple[int, int], hidden: int) -> Rows | None:
    """See `star_rows`."""
    return star_rows(own, sizes, hidden, _layer(hidden))


def _told(
    own: Any, query: Tensor, user: Tensor, item: Tensor, residual: Tensor, seen: Tensor
) -> Tensor:
    """Return the mean residuals, (m,); `user` is not read."""
    import torch

    from algorithms.nn._shared.ratings import masked_mean

    said = torch.cat([item @ own.value, torch.ones_like(residual)[:, None]], dim=1)
    mean = masked_mean(residual[:, None] * said, seen)
    added: Tensor = (mean[:, :-1] * query).sum(dim=1) + own.plain * mean[:, -1]
    return added
