"""What plans say of SEALED messages."""

from __future__ import annotations

from protocols.disclosures._base.words import NETWORK, Chain, Words
from protocols.disclosures.names import Disclosure


class SealedWords(Words):
    """Rows that one client addresses to another."""

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what a sealed message tells it."""
        return {"aggregator": "size only", "addressee": "its own row", "network": NETWORK}

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        return "what other clients addressed to it"


WORDS = SealedWords(Disclosure.SEALED)
