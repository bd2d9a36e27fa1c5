"""The guard of NEIGHBOUR_SUM messages: masks among those whose sum one client reads."""

from __future__ import annotations

from typing import ClassVar, Literal

from protocols.policy.guard import Guard, ValueStage


class MaskNeighbours(Guard):
    """Add masks that cancel over all neighbours of a receiver, and seal to that receiver.

    Each receiver has masks of its own. Nobody can take them off for whoever is missing: a sum that
    lacks a neighbour is not opened.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.INTEGER,)
    gives: ClassVar[ValueStage] = ValueStage.MASKED
    guard: Literal["mask_neighbours"] = "mask_neighbours"


GUARDS = (MaskNeighbours,)
