"""One client in one captured round, as its victim and its attacker see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Counts", "Exposure", "Floats", "Truth", "change"]

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Truth:
    """What a victim knows of itself; never leaves it.

    Attributes:
        labels: int64 (C,), training records per class; None if the task has no classes.
        members: float32 (m, F), input features of training nodes; None if it has none.
        outsiders: float32 (n, F), features of nodes that had no influence on training.
    """

    labels: Counts | None = None
    members: Floats | None = None
    outsiders: Floats | None = None


@dataclass(frozen=True, repr=False)
class Exposure:
    """One client in one round.

    Attributes:
        client, round: which.
        known: what everybody was given; ``weights``: (d,).
        raw: the client's message before protection, recomputed; ``delta``: (d,), and ``count``, a
            scalar, if the message has it (then delta is weighted by it).
        seen: what the receiver learnt of it, decoded: the client's own upload where it left in
            clear, else the total over the cohort, or a row that is weighed; None: nothing.
        cohort, truth: clients whose data `seen` holds, 1: its own upload; the truth of this client.
        lr, steps: step size and gradient steps of the round; public settings.
        optimiser: ``sgd``, ``adamw`` or ``adam``, a public setting too; empty: unknown.
        afresh: as `raw`, of a client without memory; None where it remembers nothing of others.
        alone: `seen` is a total that its reader alone vouches for: with noise in it, nobody can
            compute it again.
        payload: the id of what was read, where it is no upload and no total: ``P21``.
    """

    client: str
    round: int
    known: Mapping[str, Array]
    raw: Mapping[str, Array]
    seen: Mapping[str, Array] | None
    cohort: int
    truth: Truth
    lr: float
    steps: int
    optimiser: str = ""
    afresh: Mapping[str, Array] | None = None
    payload: str = ""
    alone: bool = False


def change(values: Mapping[str, Array]) -> Array | None:
    """Return the change of the model that a message says, by record, (d,); None: no change."""
    delta = values.get("delta")
    if delta is None:
        return None
    count = float(np.asarray(values.get("count", 1.0)).ravel()[0])
    moved: Array = np.asarray(delta, dtype=np.float64).ravel() / (count if count > 0 else 1.0)
    return moved if np.isfinite(moved).all() else None
