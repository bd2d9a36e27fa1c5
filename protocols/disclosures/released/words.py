"""What plans say of RELEASED messages."""

from __future__ import annotations

from protocols.disclosures._base.words import Words
from protocols.disclosures.names import Disclosure


class ReleasedWords(Words):
    """The global model, or flags and counters."""

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        if not model:
            return "flags, counters and public seeds; no model"
        return "what was computed from disclosed totals (the global model)"


WORDS = ReleasedWords(Disclosure.RELEASED)
