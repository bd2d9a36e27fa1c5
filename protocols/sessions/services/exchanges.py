"""The aggregator's exchanges: their numbers, and what was sent in the last one."""

from __future__ import annotations

from protocols.sessions.part import Delivery, Engine, SessionPart


class Exchanges(SessionPart):
    """Counts exchanges.

    Attributes:
        number: of the exchange under way, or the last one; never repeats in a run.
        outstanding: what was sent last, perhaps unanswered.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.number = 0
        self.outstanding: list[Delivery] = []

    def next(self) -> int:
        """Begin another exchange and return its number."""
        self.number += 1
        return self.number
