"""Transports: ``exchange(deliveries) -> deliveries``; they see addresses and bytes only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # relays load this package, and nothing of a session
    from protocols.sessions.engine import Delivery


class Transport(Protocol):
    """Carries deliveries to other parties and brings back what they send in answer."""

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Carry `deliveries`, return the answers in any order."""
