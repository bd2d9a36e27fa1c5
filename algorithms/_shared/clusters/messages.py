"""What GCFL's aggregator hands out, and what its clients send."""

from __future__ import annotations

from typing import ClassVar

from protocols.messages import ReleasedMessage, SumMessage, Vector, count, real

__all__ = ["BothUpdates", "Compare", "Start", "Update"]


class Start(ReleasedMessage):
    """A cluster's shared layers, and what all clusters are told alike."""

    weights: Vector = real("d", unit="weight", meaning="the cluster's shared layers", wire="f4")
    seed: int = count(unit="seed", meaning="seed of every client's own layers, and of pivots")
    step: int = count(unit="round", meaning="rounds done so far")
    since: int = count(unit="round", meaning="rounds done at the last split of any cluster")


class Update(SumMessage):
    """What training changed in the shared layers, weighted by the number of records."""

    delta: Vector = real(
        "d", unit="weight x record", meaning="n_k times the change D_k", scale="records"
    )
    above: int = count(unit="client", meaning="1 if |D_k| is above epsilon2, else 0")
    count: int = count(unit="record", meaning="training records n_k", training=True)


class BothUpdates(SumMessage):
    """The same, and the change itself, for a mean in which all clients count alike.

    Where all clients but one have n records, delta less n times plain is a multiple of that one's.
    """

    twice: ClassVar[bool] = True
    delta: Vector = real(
        "d", unit="weight x record", meaning="n_k times the change D_k", scale="records"
    )
    plain: Vector = real("d", unit="weight", meaning="the change D_k")
    above: int = count(unit="client", meaning="1 if |D_k| is above epsilon2, else 0")
    count: int = count(unit="record", meaning="training records n_k", training=True)


class Compare(ReleasedMessage):
    """A request to be compared by the changes of this round, which were summed already."""

    step: int = count(unit="round", meaning="rounds done so far, as Start said it")
