"""What the attack on released models is given: models, records, and a way to train more models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["UNTAKEN", "Candidates", "Released"]

UNTAKEN = "no client's record vouches for the model: that it is the run's is its aggregator's word"

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class Candidates:
    """One client's records, of each of which it is asked whether it trained; never leaves it.

    Attributes:
        members: (N,), those that trained; the others were held out.
        known: (A, N), what is known of each without a model: degree, share of its class, closeness
            to the mean, and the like; any direction.
        marks: (N,), a digest of each record: equal ones are one record, whoever holds it.
    """

    members: Bools
    known: Array
    marks: npt.NDArray[np.bytes_]


@dataclass(frozen=True, repr=False)
class Released:
    """The models of a finished run, and its code and data once more.

    Attributes:
        task: ``node``, ``graph`` or ``rating``: what a record is.
        candidates: client -> its records.
        shared: name -> the model that all clients were given, whole; empty: there is none.
        own: client -> its own model, where that is another one than all were given.
        untaken: those of them that no client's ledger names.
        unshared: why no whole model is shared; empty if one is.
        unkept: why no client's own model could be looked at; empty if some could, or if each
            client keeps the shared one.
        train: gives a model that these clients train together, each on those of its candidates that
            are marked, by the run's model and local training and from its public start; the number
            decides all chance in it. One client trains alone.
        confidence: gives how sure a model is of the truth of each candidate of a client, (N,): the
            logit of the true class, or minus the distance to the true rating.
        read: client -> the mean of neighbours' models, its own among them, that the neighbour read
            in which it weighs most; and its own, as it gave it in that round. Needs captures.
        unread: why there is no such mean; empty if there are some, or if nobody mixes models.
    """

    task: str
    candidates: Mapping[str, Candidates]
    shared: Mapping[str, object]
    own: Mapping[str, object]
    train: Callable[[Mapping[str, Bools], int], object]
    confidence: Callable[[object, str], Array]
    untaken: frozenset[str] = frozenset()
    unshared: str = ""
    unkept: str = ""
    read: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    unread: str = ""
