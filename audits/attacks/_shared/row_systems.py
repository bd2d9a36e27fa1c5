"""What the attack on rows is given: what receivers are told, as equations, and what is true.

It stays where the truth lies, as all that attacks are given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowSystem", "RowsTold"]

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class RowSystem:
    """All rows that one receiver, or two that pool, were told, their own terms taken off.

    Attributes:
        who: the receivers, joined by ``+``.
        system: (rows, n), how often each other client's node enters each row.
        sums: (rows, F), what the terms add up to.
        terms: (n, F), the truth.
    """

    who: str
    system: Array
    sums: Array
    terms: Array


@dataclass(frozen=True, repr=False)
class RowsTold:
    """A run's rows, by the policy's rule and without it.

    Attributes:
        seen: by the policy's form, one system a receiver.
        pooled: the same of two receivers each.
        raw: as published: every row that a receiver asks for.
        tolerance: by how much the grid moves an entry.
    """

    seen: tuple[RowSystem, ...]
    pooled: tuple[RowSystem, ...]
    raw: tuple[RowSystem, ...]
    tolerance: float
