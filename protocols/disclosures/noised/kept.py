"""What of noised messages stands in a session's kept state."""

from __future__ import annotations

from protocols.disclosures.noised.decoys import Decoyer
from protocols.disclosures.noised.view import Noised

KEPT = (Decoyer, Noised)
