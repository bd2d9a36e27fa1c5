"""What a plan says of the noise of one item."""

from __future__ import annotations

from typing import Literal

from protocols.strict import Strict

__all__ = ["CountPlan", "NoisePlan"]


class NoisePlan(Strict):
    """The noise of one item; numbers that are not whole are decimal texts.

    Attributes:
        mechanism: ``discrete_gaussian`` or ``discrete_laplace``, or a local randomiser's name.
        sigma: standard deviation (scale, for Laplace) of one client's noise, in grid steps; empty
            where a randomiser adds none.
        l2, l1: largest norms of one vector in grid steps; empty likewise.
        coordinates: entries that are noised.
        honest: noise shares that are counted on (O18).
        margin: head-room, in grid steps of a total, on either side (O19).
        releases: of one client, in the whole run.
        epsilon, delta: the target for the run.
        adjacency: ``zero-out``: the vector is compared with none, and all honest shares hide it;
            ``replace-one``: with any other vector, which may be twice its norm away, and only the
            client's own share hides it.
        pure: epsilon of one message, at delta 0, of mechanisms that have one; else empty.
        batch: messages of honest clients in every batch that a relay puts in order, at least; 0
            without a relay.
        shuffled: epsilon of the run at `delta` against who reads such batches, while the relay
            works for nobody else; empty where the order is worth nothing that is known.
    """

    mechanism: str
    sigma: str
    l2: str
    l1: str
    coordinates: int
    honest: int
    margin: int
    releases: int
    epsilon: str
    delta: str
    adjacency: Literal["zero-out", "replace-one"] = "zero-out"
    pure: str = ""
    batch: int = 0
    shuffled: str = ""

    @property
    def local(self) -> bool:
        """Whether one client's own noise is all that is counted on."""
        return self.adjacency == "replace-one"

    @property
    def apart(self) -> float:
        """By how many of its norms two neighbouring vectors differ at most."""
        return 2.0 if self.local else 1.0


class CountPlan(Strict):
    """The noise of one item that hides single records; numbers not whole are decimal texts.

    Attributes:
        unit: the records: ``graph``: counts of scored graphs (`record_noise`); ``node``: rows of
            nodes' features (`row_noise`).
        mechanism: ``discrete_gaussian`` or ``discrete_laplace``.
        scale: of the noise on a field, in units of what one record moves it by; on a row, in units
            of the clip.
        fields: of one message, noised ones: one record moves each by its unit at most. Of rows,
            those that one node enters at most.
        entries: numbers that are noised.
        margin: head-room of a total on either side (O19); 0 where words have room.
        releases: of one client, in the whole run.
        epsilon, delta: for one record and the run.
    """

    unit: Literal["graph", "node"] = "graph"
    mechanism: Literal["discrete_gaussian", "discrete_laplace"]
    scale: str
    fields: int
    entries: int
    margin: int
    releases: int
    epsilon: str
    delta: str
