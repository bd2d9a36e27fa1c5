"""One client's ratings, checked and made ready for training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algorithms.nn._shared.ratings import Bipartite
from algorithms.tasks import Split

__all__ = ["RatingsData", "RatingsLike"]


class RatingsLike(Split, Protocol):
    """Arrays from which `RatingsData` is built; `secure_fgl.data.ClientRatings` is one."""

    @property
    def user(self) -> npt.NDArray[np.int64]:
        """Who rated, int64 (M,)."""

    @property
    def item(self) -> npt.NDArray[np.int64]:
        """What was rated, int64 (M,)."""

    @property
    def rating(self) -> npt.NDArray[np.float32]:
        """How, float32 (M,)."""


@dataclass(frozen=True, repr=False, eq=False)
class RatingsData:
    """One client's ratings, ready for training. Everything here is private.

    Attributes:
        users, items: int64, numbers of the users and items that the client has a rating of,
            training or not, ascending.
        user, item: int64 (M,), places in `users` and `items`.
        rating: float32 (M,), as given.
        train, val, test: bool (M,), disjoint.
        graph: of the training ratings alone.
        sizes: how many users and items there are at most (public).
        planted: how many of the training ratings the client made up as canaries; `count` leaves
            them out.
    """

    users: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    user: Tensor
    item: Tensor
    rating: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    graph: Bipartite
    sizes: tuple[int, int]
    planted: int = 0

    @classmethod
    def from_ratings(cls, part: RatingsLike, users: int, items: int) -> RatingsData:
        """From numpy arrays, which are copied.

        Args:
            part: one client's ratings.
            users: how many there are at most, as `DataSpec` says.
            items: likewise.

        Raises:
            ValueError: shapes disagree, a number is out of range, a rating is not finite, a pair
                occurs twice or masks overlap.
        """
        _check(part, users, items)
        own_users, user = np.unique(np.asarray(part.user, dtype=np.int64), return_inverse=True)
        own_items, item = np.unique(np.asarray(part.item, dtype=np.int64), return_inverse=True)
        train, val, test = (
            torch.from_numpy(np.array(mask, dtype=bool))
            for mask in (part.train, part.val, part.test)
        )
        pairs = torch.from_numpy(np.stack([user, item]).astype(np.int64))
        rating = torch.tensor(part.rating, dtype=torch.float32)
        seen = Bipartite(pairs[:, train], len(own_users), len(own_items), rating[train])
        return cls(
            users=own_users,
            items=own_items,
            user=pairs[0],
            item=pairs[1],
            rating=rating,
            train=train,
            val=val,
            test=test,
            graph=seen,
            sizes=(users, items),
        )

    @property
    def count(self) -> int:
        """Number of training ratings."""
        return int(self.train.sum()) - self.planted

    def __repr__(self) -> str:
        return "<RatingsData>"


def _check(part: RatingsLike, users: int, items: int) -> None:
    ratings = len(part.rating)
    masks = [np.asarray(mask, dtype=bool) for mask in (part.train, part.val, part.test)]
    if any(np.shape(column) != (ratings,) for column in (part.user, part.item, *masks)):
        raise ValueError(
            "users, items, ratings and masks differ in length; each needs one entry a rating: "
            "check how the ratings were cut"
        )
    for numbers, size, what in ((part.user, users, "a user"), (part.item, items, "an item")):
        if ratings and (np.min(numbers) < 0 or np.max(numbers) >= size):
            raise ValueError(
                f"the number of {what} is out of range; number users and items from 0, alike at "
                "all clients, and let DataSpec.users and items be how many there are"
            )
    if not np.isfinite(part.rating).all():
        raise ValueError("the ratings hold NaN or infinity; leave such rows out before training")
    if np.sum(masks, axis=0).max(initial=0) > 1:
        raise ValueError("train, val and test overlap; a rating may have one role only")
    pairs = np.asarray(part.user, dtype=np.int64) * items + np.asarray(part.item, dtype=np.int64)
    if len(np.unique(pairs)) != ratings:
        raise ValueError(
            "a user rates an item twice; keep one of the two rows, or a test rating could be "
            "among the training ratings"
        )
