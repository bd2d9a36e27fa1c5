"""In words: what a relay gets, and what it returns (O23)."""

from __future__ import annotations

from protocols.disclosures.names import Disclosure

BATCH = "who took part when; sealed boxes, as many and as large for every client, and no content"
_POOLS = {
    Disclosure.MIXED: "the cohort's mixtures in one order that tells no sender; content still "
    "hints at senders",
    Disclosure.NOISED: "the cohort's noised messages in one order that tells no sender; sender, "
    "time and size of what went to the relay are known",
}


def pool_of(part: Disclosure) -> str:
    """Return what the aggregator learns of what a relay returns."""
    return _POOLS[part]
