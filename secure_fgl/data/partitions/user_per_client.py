"""A client is one user with the ratings that the user gave.

The setting of FedPerGNN, FCF and FedMF (Wu et al. 2022; Ammad-ud-din et al. 2019; Chai et al.
2020). A user without a training rating has nothing to say and is no client.
"""

from __future__ import annotations

import numpy as np

from secure_fgl.data.partitions._shared import Cut, as_many, groups, with_roles
from secure_fgl.data.records import Masks, Ratings

__all__ = ["KINDS", "cut"]

KINDS = ("rating",)


def cut(
    ratings: Ratings,
    masks: Masks,
    clients: int,
    rng: np.random.Generator,
    *,
    most: bool = False,
) -> list[Cut]:
    """One cut a client, in the order of the users' numbers; nothing is drawn from `rng`.

    Args:
        ratings: the whole set.
        masks: roles of the ratings.
        clients: as many as there are users with a training rating, unless `most`.
        rng: unused.
        most: take only the `clients` users with the most training ratings (ties: lower numbers);
            the others' ratings are nobody's.

    Raises:
        ValueError: there are not as many users with a training rating as clients, or, with
            `most`, fewer.
    """
    counts = np.bincount(ratings.user[masks.train], minlength=ratings.users)
    found = np.flatnonzero(counts)
    if most and clients <= len(found):
        found = np.sort(np.argsort(-counts, kind="stable")[:clients])
    as_many(ratings.name, len(found), "users with a training rating", clients)
    client_of = np.full(ratings.users, -1, dtype=np.int64)
    client_of[found] = np.arange(clients)
    return with_roles(groups(client_of[ratings.user], clients), masks)
