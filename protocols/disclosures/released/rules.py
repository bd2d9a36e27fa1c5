"""Which guard a RELEASED message has."""

from __future__ import annotations

from protocols.disclosures._base.rules import Rules


class ReleasedRules(Rules):
    """Sealed to its receiver."""

    protecting = frozenset({"seal"})
    applied = protecting


RULES = ReleasedRules()
