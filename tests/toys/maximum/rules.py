"""Which chain protects a MAXIMUM message, and which messages fit it."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.rules import Chain, Limits, Rules
from protocols.forms import Form
from protocols.messages import Message
from protocols.policy.guard import find


class MaximumRules(Rules):
    """Small integers, level by level in two shares; or in clear."""

    protecting = frozenset({"levels", "unsafe_clear"})
    applied = protecting | {"seal"}
    order = "levels, seal"

    def check(self, chain: Chain) -> None:
        """Hold it to its one chain."""
        if not find(chain, "levels"):
            super().check(chain)
        elif tuple(guard.guard for guard in chain) != ("levels", "seal"):
            raise ValueError("needed are exactly levels, seal")

    def accounted(self, chain: Chain) -> bool:
        """Tell that a maximum has no noise, so none can be accounted."""
        return not find(chain, "levels")

    def alone(self, chain: Chain) -> bool:
        """Tell that an exchange opens one maximum."""
        return find(chain, "levels") is not None

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse what is no integer."""
        if len(kind.fields) == 1 and kind.fields[0].wire == "u8":
            return None
        return f"message {kind.__name__} holds more than one field of counts"


RULES = MaximumRules()
