"""Transports: ``exchange(parcels) -> parcels``. They see addresses and bytes, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from protocols.sessions.engine import Parcel


class Transport(Protocol):
    """Delivers parcels to other parties and brings back what they send in answer."""

    def exchange(self, parcels: Sequence[Parcel]) -> list[Parcel]:
        """Deliver `parcels`, return the answers in any order."""
