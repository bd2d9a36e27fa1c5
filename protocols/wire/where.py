"""Where in the run a message belongs."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.wire.header import NONE


@dataclass(frozen=True)
class Where:
    """Where in the run a message belongs.

    Attributes:
        round: 0 before the first and after the last round.
        exchange: number of the Ask; never repeats in a run.
        members: the exact cohort; empty for messages outside any cohort.
        given: digest of what the cohort was given.
        attempt: always 1: a round that cannot be opened is skipped, not repeated (O5).
        slot: how many sums of the same kind came before in the round.
    """

    round: int = 0
    exchange: int = 0
    members: tuple[str, ...] = ()
    given: str = NONE
    attempt: int = 1
    slot: int = 0
