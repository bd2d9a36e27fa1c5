"""What was captured of clients in rounds, and what they would send on other draws of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

# --- One client in one captured round, as its victim and its attacker see it ---

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


# --- Audit replicas: clients' local steps once more, on other draws of their own records ---
#
# With few clients an interval over clients is wide, and most of its width may be the luck of which
# records each of them happens to train on. A replica takes that luck out: every client draws its
# training records anew, as many as it has, answers the very model that it was given, and the total
# is formed from these answers. Nothing of it is sent. Replicas of one client are of one client:
# scores are averaged over them, and intervals are over clients (docs/adr/0082-audit-replicas.md).

REPLICAS = 7
"""Beside the run's own draw. Where half of a score's variance is the draw's, eight draws take seven
sixteenths of it away, and ever more of them only one sixteenth more."""
ALONE = "the run's own draw alone"
"""Ends a row without the replicas, that stands beside one with them where it is FAIL."""
FEW = 50
"""Clients up to which replicas are drawn; above it intervals are narrow enough without."""


@dataclass(frozen=True, repr=False)
class Redrawn:
    """What draws replicas of a run's captured rounds.

    Attributes:
        play: draws all clients' records once more and returns what each said in the captured
            rounds and what the receiver would have read; None: nothing is drawn.
        why: in words, why nothing is; empty: nobody asked for it.
    """

    play: Callable[[np.random.Generator], Sequence[Exposure]] | None = None
    why: str = ""


def drawn_again(
    there: Sequence[Exposure], redrawn: Redrawn, rng: np.random.Generator
) -> Iterator[Sequence[Exposure]]:
    """Yield the run's own exposures and then those of each replica, one at a time.

    Only clients that are in the run's own round are in a replica's. What is drawn takes nothing
    from `rng`, so the figures of the run's own draw are what they are without replicas.

    Args:
        there: of one payload, whose receiver reads totals.
        redrawn: of the run.
        rng: of the attack.
    """
    yield there
    play, known = redrawn.play, {(one.client, one.round) for one in there}
    if play is None or all(one.cohort == 1 for one in there):
        return
    for child in rng.spawn(REPLICAS):
        yield [one for one in play(child) if (one.client, one.round) in known]


class OfClient(Protocol):
    """What an attack measured of one client."""

    client: str


Mine = TypeVar("Mine", bound=OfClient)


def counted(drawn: Sequence[Sequence[Mine]]) -> list[Mine]:
    """Return what was measured in all draws, of clients alone that are in the run's own draw.

    Args:
        drawn: the run's own draw first, then that of each replica.
    """
    known = {one.client for one in drawn[0]}
    return [one for those in drawn for one in those if one.client in known]


def noted(note: str, redrawn: Redrawn) -> str:
    """Return the note of a row, with why it has no replicas."""
    why = f"No replicas: {redrawn.why}" if redrawn.why else ""
    return ". ".join(filter(None, (note, why)))
