"""What goes to a relay and comes back from it."""

from __future__ import annotations

from protocols.disclosures._relayed.messages import MESSAGES

__all__ = ["MESSAGES"]
