"""What a rating model's file offers, and the file by its name."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, cast

from algorithms import nn
from algorithms.nn._shared.rating_layouts import Inputs, Rows
from algorithms.tasks import Kind

if TYPE_CHECKING:
    from algorithms.nn._shared.ratings import RatingModel

__all__ = ["RatingFile", "rating_model"]


class RatingFile(Protocol):
    """What a rating model's file offers beside `NAME` and `TASK`."""

    NAME: str
    TASK: Kind

    def build(
        self, users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
    ) -> RatingModel:
        """An uninitialised model."""

    def rows(self, own: tuple[Rows, Rows], sizes: tuple[int, int], hidden: int) -> Rows | None:
        """Places of a site's parameters in the flat vector; None if every site needs them all.

        Args:
            own: numbers of the users and of the items that the site knows, ascending.
            sizes: how many users and items there are.
            hidden: as in `build`.
        """


@lru_cache
def rating_model(name: str) -> RatingFile:
    """The file of a rating model by its name.

    Raises:
        ValueError: no such model; the message names the nearest one.
    """
    return cast(RatingFile, nn.model(name, "rating"))
