"""Which guard a PUBLIC message has."""

from __future__ import annotations

from protocols.disclosures._base.rules import Rules


class PublicRules(Rules):
    """Signed; anybody may read it."""

    protecting = frozenset({"sign"})
    applied = protecting


RULES = PublicRules()
