"""A gated step over what one user rated: FedPerGNN's GGNN, see `Star`.

One step of a gated graph network (Li et al., ICLR 2016, eqs. 2 to 6) at the user's node. With the
message m = mean_k s_k V q_k, k rated by u and k ≠ j,

    z = σ(m Z + p U),  r = σ(m R + p S),  c = tanh(m C + (r * p) D),
    layer = <(1 - z) * p + z * c - p, q_j>.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Inputs, Layout, Rows, Shapes, star, star_rows
from algorithms.tasks import Kind

if TYPE_CHECKING:
    from torch import Tensor

    from algorithms.nn._shared.ratings import Star

NAME = "user_ggnn"
TASK: Kind = "rating"
ALONE = True


def _layer(hidden: int) -> Shapes:
    """W, V (h, h), then Z, R, C and U, S, D side by side, (h, 3 h) each."""
    square = tuple((name, (hidden, hidden)) for name in ("around", "value"))
    return (*square, ("message", (hidden, 3 * hidden)), ("state", (hidden, 3 * hidden)))


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
    """Return what the step changes in the user's vector, times the items', (m,)."""
    import torch

    from algorithms.nn._shared.ratings import masked_mean

    h = len(user)
    said = masked_mean(residual[:, None] * (item @ own.value), seen) @ own.message
    known = user @ own.state[:, : 2 * h]
    gates = torch.sigmoid(said[:, : 2 * h] + known)
    update, reset = gates[:, :h], gates[:, h:]
    fresh = torch.tanh(said[:, 2 * h :] + (reset * user) @ own.state[:, 2 * h :])
    return (update * (fresh - user) * query).sum(dim=1)
