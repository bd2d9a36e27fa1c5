"""What of a maximum stands in a session's kept state."""

from __future__ import annotations

from protocols.disclosures.maximum.view import MaximumView, Raised

KEPT = (MaximumView, Raised)
