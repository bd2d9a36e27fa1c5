"""Matrix factorisation with biases; see `algorithms.nn.modules.dot`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from algorithms.nn._shared.layouts import Layout
from algorithms.nn._shared.rating_layouts import MEAN, Inputs, Rows, side, side_rows
from algorithms.tasks import Kind

if TYPE_CHECKING:
    from algorithms.nn._shared.ratings import RatingModel

NAME = "dot"
TASK: Kind = "rating"


def layout(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> Layout:
    """Q (items, h), b, m; then P (users, h), b, the head."""
    return Layout((*side("items.", items, hidden), *MEAN), side("head.", users, hidden))


def build(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> RatingModel:
    """Dot product of width `hidden`, uninitialised; `layers`, `dropout`, `inputs` are unused."""
    from algorithms.nn.modules import dot as made

    return made.build(users, items, hidden, layers, dropout, inputs)


def rows(own: tuple[Rows, Rows], sizes: tuple[int, int], hidden: int) -> Rows | None:
    """Places of Q, b, μ, P, b of the site's own items and users; see `RatingFile.rows`."""
    users, items = own
    after = sizes[1] * (hidden + 1)  # where μ stands
    mean = np.array([after], dtype=np.int64)
    return np.concatenate(
        [side_rows(items, sizes[1], hidden), mean, side_rows(users, sizes[0], hidden) + after + 1]
    )
