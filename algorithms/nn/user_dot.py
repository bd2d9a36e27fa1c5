"""Matrix factorisation for sites of one user, with its vector to itself; see `Star`.

The formula is that of `dot`. There every site has a row for every user; here it has the one of its
own, as in FCF and FedMF, so that nothing grows with the number of users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithms.nn._shared.layouts import Inputs, Layout, Rows, star, star_rows
from algorithms.tasks import Kind

if TYPE_CHECKING:
    from algorithms.nn._shared.ratings import RatingModel

NAME = "user_dot"
TASK: Kind = "rating"
ALONE = True


def layout(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> Layout:
    """A star's, without a layer; see `star`."""
    return star(items, hidden, ())


def build(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> RatingModel:
    """A star without a layer, uninitialised; all but `items` and `hidden` are unused."""
    from algorithms.nn._shared.ratings import Star

    return Star(layout(users, items, hidden, layers, dropout, inputs))


def rows(own: tuple[Rows, Rows], sizes: tuple[int, int], hidden: int) -> Rows | None:
    """See `star_rows`."""
    return star_rows(own, sizes, hidden, ())
