"""What the rules share."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import Masks

__all__ = ["Cut", "Records", "as_many", "groups", "with_roles"]

Records = npt.NDArray[np.int64]
"""Numbers of records in the whole set."""


class Cut(NamedTuple):
    """What one client gets: numbers of records in the whole set, int64, ascending.

    Attributes:
        members: all its records. Nodes and ratings occur once; a graph may occur several times
            where the rule draws with replacement.
        train, val, test: its roles, disjoint subsets of `members`, each number once.
        common: nodes of a test graph that every client is given, no client's members; None: no
            such graph.
        tune: nodes of new classes that a model is tuned to; a subset of `members` apart from the
            three roles. None: none.
        labels: the client's labels, one a member, -1 for a node whose label it does not know;
            None: those of the whole set.
    """

    members: Records
    train: Records
    val: Records
    test: Records
    common: Records | None = None
    tune: Records | None = None
    labels: Records | None = None


def groups(owner: Records, clients: int) -> list[Records]:
    """The records of each client, ascending; those of owner -1 are nobody's."""
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(clients + 1))
    return [order[start:end] for start, end in pairwise(bounds)]


def with_roles(members: list[Records], masks: Masks) -> list[Cut]:
    """Cuts whose roles are those drawn over the whole set."""
    return [Cut(of, *(np.unique(of[mask[of]]) for mask in masks)) for of in members]


def as_many(name: str, found: int, what: str, clients: int) -> None:
    """Check that the data has one part a client.

    Raises:
        ValueError: it has not.
    """
    if found != clients:
        raise ValueError(
            f"the data set {name!r} has {found} {what} and {clients} clients were asked for; make "
            "the two numbers equal"
        )
