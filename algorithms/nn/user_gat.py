"""Attention over what one user rated: FedPerGNN's GAT, see `Star`.

    a_jk = softmax_k(<A q_j, B q_k> / √h),   k rated by u and k ≠ j,
    layer = n / (n + 1) Σ_k a_jk s_k (<V q_k, q_j> + g),

with n the number of ratings that the answer may rest on: what one other rating says counts half.
The scores are those of scaled dot-product attention (Vaswani et al., NeurIPS 2017, eq. 1) in place
of the single-layer network of GAT (Veličković et al., ICLR 2018, eq. 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Inputs, Layout, Rows, Shapes, star, star_rows
from algorithms.tasks import Kind

if TYPE_CHECKING:
    from torch import Tensor

    from algorithms.nn._shared.ratings import Star

NAME = "user_gat"
TASK: Kind = "rating"
ALONE = True


def _layer(hidden: int) -> Shapes:
    """W, A, B, V (h, h) and g."""
    square = tuple((name, (hidden, hidden)) for name in ("around", "asking", "asked", "value"))
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
    norm = hidden**-0.5  # rows of A and B then have an expected norm of 1
    return Star(shapes, _told, dropout, {"asking": norm, "asked": norm})


def rows(own: tuple[Rows, Rows], sizes: tuple[int, int], hidden: int) -> Rows | None:
    """See `star_rows`."""
    return star_rows(own, sizes, hidden, _layer(hidden))


def _told(
    own: Any, query: Tensor, user: Tensor, item: Tensor, residual: Tensor, seen: Tensor
) -> Tensor:
    """Return the weighted residuals, (m,); `user` is not read."""
    from algorithms.nn._shared.ratings import masked_softmax

    scores = (query @ own.asking) @ (item @ own.asked).T / query.shape[1] ** 0.5
    weighed = masked_softmax(scores, seen) * residual
    heard = ((weighed @ (item @ own.value)) * query).sum(dim=1)
    count = seen.sum(dim=1)
    added: Tensor = (heard + own.plain * weighed.sum(dim=1)) * (count / (count + 1.0))
    return added
