"""Transports: ``exchange(deliveries) -> deliveries``; they see addresses and bytes only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from protocols.sessions.engine import Delivery


class Transport(Protocol):
    """Carries deliveries to other parties and brings back what they send in answer."""

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Carry `deliveries`, return the answers in any order."""
