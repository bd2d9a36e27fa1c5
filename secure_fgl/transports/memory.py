"""In-process transport: the embedded default and the simulator. Still through bytes.

All roles run in one process, so nothing separates them but code: a run over this transport prints
and reports "SIMULATION: roles are not separated" (O26).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from protocols.sessions.engine import Delivery


class Receiver(Protocol):
    """A session that answers envelopes."""

    def receive(self, data: bytes) -> list[Delivery]:
        """Take one envelope, return the answers."""


class MemoryTransport:
    """Calls the addressed session with the delivery's bytes.

    Args:
        sessions: by party name; every role but the aggregator.

    Attributes:
        batch: of larger exchanges, so many envelopes at a time. Nothing here is lost or carried
            twice, so nothing needs to be held for that case; see `secure_fgl.run.driver.Driver`.
    """

    batch = 64

    def __init__(self, sessions: Mapping[str, Receiver]) -> None:
        self._sessions = dict(sessions)

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Deliver each and collect the answers, in order."""
        answers: list[Delivery] = []
        for delivery in deliveries:
            answers += self._sessions[delivery.to].receive(bytes(delivery.data))
        return answers
