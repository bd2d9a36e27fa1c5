"""A client holds all ratings of one category of items, with the users who gave them.

FedGraphNN's partition of Ciao (He et al., 2021): 28 categories, 28 clients. There the roles are
plain random over the ratings (80/10/10); `split_masks` with `stratify=False` draws them so.
"""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions._shared import Records, as_many
from secure_fgl.data.records import Ratings

__all__ = ["KINDS", "assign"]

KINDS = ("rating",)


def assign(ratings: Ratings, clients: int, rng: np.random.Generator) -> Records:
    """Owner of every rating, int64 (M,), in the order of the categories' numbers.

    Nothing is drawn from `rng`.

    Raises:
        ValueError: the ratings have no categories, or not as many as clients.
    """
    if ratings.category is None:
        raise ValueError(
            f"the data set {ratings.name!r} has no categories of items; choose another partition, "
            "for example user_per_client"
        )
    found, owner = np.unique(ratings.category, return_inverse=True)
    as_many(ratings.name, len(found), "categories", clients)
    return owner.astype(np.int64)
