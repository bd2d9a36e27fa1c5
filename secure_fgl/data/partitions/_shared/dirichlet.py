"""Slices of random sizes, drawn again until nobody goes empty."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from secure_fgl.data.partitions._shared.rule import Records

__all__ = ["drawn", "sliced"]

ATTEMPTS = 1000
"""Draws before giving up; the published programs loop for ever."""


def sliced(line: Records, weights: npt.NDArray[np.float64]) -> list[Records]:
    """Consecutive slices of a line, as long as their weights say, rounded down cumulatively.

    So do FedGraphNN and FedGCN; `weights` are 0 or more, and not all 0.
    """
    reached = np.cumsum(weights / weights.sum())[:-1]
    return np.split(line, (reached * len(line)).astype(np.int64))


def drawn(
    draw: Callable[[], list[Records]], *, beta: float, least: int, records: int
) -> list[Records]:
    """The first of the draws in which every client gets `least` records.

    Args:
        draw: one attempt, one array a client.
        beta: concentration, for the error; must be above 0.
        least: records of each client, 0 or more.
        records: how many there are to share.

    Raises:
        ValueError: beta or least is out of range, or no draw succeeds.
    """
    if not beta > 0.0 or not np.isfinite(beta) or least < 0:
        raise ValueError("beta must be above 0 and finite, and least must be 0 or more")
    for _ in range(ATTEMPTS):
        slices = draw()
        if len(slices) * least > records:
            break
        if min(map(len, slices)) >= least:
            return slices
    raise ValueError(
        f"no way was found to share {records} records so that every client gets {least} at beta "
        f"{beta:g}: ask for fewer clients, a larger beta, or a smaller least"
    )
