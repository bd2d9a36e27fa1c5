"""Matrix factorisation with biases: every user and every item has a vector of its own.

Koren, Bell and Volinsky, Matrix Factorization Techniques for Recommender Systems, IEEE Computer
2009, eq. 4, on the scale from 0 to 1:

    r_ui = μ + b_i + b_u + <q_i, p_u>.

Parameters: Q (items, h), b (items), m with μ = 1/2 + 2 m, then P (users, h) and b (users). The
users' part is the head, so an algorithm that shares the base only keeps every user's vector at the
client.

A sum of updates has a row for every item, and a site without a training rating of an item adds
zero to its row (but for weight decay). So the total shows which items nobody rated, and **a row
may have a single contributor** (O12): after one step of plain gradient descent an item's row is
then a multiple of its only rater's vector, and the bias's entry is the error of that rating.
Encryption and masks hide the summands, not such a total; noise does, and so does a model without
rows (`gcn_dot`). Users' rows have a single contributor nearly always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from algorithms.nn._shared.layouts import MEAN, Inputs, Layout, Rows, side, side_rows
from algorithms.tasks import Kind, Weights

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.nn._shared.ratings import Bipartite, RatingModel

NAME = "dot"
TASK: Kind = "rating"

_ITEM_NORM = 0.1  # see `_start`


def layout(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> Layout:
    """Q (items, h), b, m; then P (users, h), b, the head."""
    return Layout((*side("items.", items, hidden), *MEAN), side("head.", users, hidden))


def build(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> RatingModel:
    """Dot product of width `hidden`, uninitialised; `layers`, `dropout`, `inputs` are unused."""
    from algorithms.nn._shared.ratings import RatingModel

    shapes = layout(users, items, hidden, layers, dropout, inputs).whole
    return RatingModel(shapes, _ratings, _start)


def rows(own: tuple[Rows, Rows], sizes: tuple[int, int], hidden: int) -> Rows | None:
    """Places of Q, b, μ, P, b of the site's own items and users; see `RatingFile.rows`."""
    users, items = own
    after = sizes[1] * (hidden + 1)  # where μ stands
    mean = np.array([after], dtype=np.int64)
    return np.concatenate(
        [side_rows(items, sizes[1], hidden), mean, side_rows(users, sizes[0], hidden) + after + 1]
    )


def _ratings(
    own: Any,
    graph: Bipartite,
    user: Tensor,
    item: Tensor,
    generator: torch.Generator,
    training: bool,
) -> Tensor:
    from torch.nn.functional import embedding

    from algorithms.nn._shared.ratings import mean_rating

    product = embedding(item, own.items.table) * embedding(user, own.head.table)
    biases = own.items.bias.index_select(0, item) + own.head.bias.index_select(0, user)
    rating: Tensor = mean_rating(own) + biases + product.sum(dim=1)
    return rating[:, None]


def _start(own: Any, rng: np.random.Generator) -> Weights:
    """Items' vectors normal with expected squared norm 0.01; all others 0, so μ is 1/2.

    Glorot's bound for a table would shrink with the length of the catalogue, as if a rating summed
    over all items; it reads one row. With P = 0 a user whom nobody trained keeps exactly
    r = μ + b_i, and Q ≠ 0 gives P a gradient at once. Q is small, so that an item that nobody
    trained adds only about a tenth of the user's norm over √h, in random direction.
    """
    items, hidden = own.items.table.shape
    start = np.zeros(sum(parameter.numel() for parameter in own.parameters()), np.float32)
    start[: items * hidden] = rng.normal(0.0, _ITEM_NORM / np.sqrt(hidden), items * hidden)
    return start
