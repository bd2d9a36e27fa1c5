"""Which guard a SEALED message has."""

from __future__ import annotations

from protocols.disclosures._base.rules import Rules


class SealedRules(Rules):
    """Sealed to the party that opens it."""

    protecting = frozenset({"seal"})
    applied = protecting


RULES = SealedRules()
