"""What of sealed messages stands in a session's kept state."""

from __future__ import annotations

from protocols.disclosures.sealed.view import Boxed, HandedView

KEPT = (Boxed, HandedView)
