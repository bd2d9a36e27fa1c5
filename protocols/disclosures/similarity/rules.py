"""Which chain protects vectors that are compared."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.rules import Limits
from protocols.disclosures._evaluated.rules import EvaluatedRules
from protocols.forms import Form
from protocols.messages import Message, SimilarityMessage


class SimilarityRules(EvaluatedRules):
    """Directions, encrypted; one number a pair is opened."""

    protecting = frozenset({"cosine", "unsafe_clear"})
    applied = protecting | {"normalise", "seal"}
    chain = ("normalise", "cosine", "seal")
    order = "normalise, cosine, seal"

    def not_computed(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse a message that is not one vector, or is not compared by cosines."""
        if issubclass(kind, SimilarityMessage) and not kind.cosines:
            return f"message {kind.__name__} is compared otherwise than by cosines: only in clear"
        if len(kind.fields) == 1:
            return None
        return f"message {kind.__name__} holds more than the one vector that is compared"


RULES = SimilarityRules()
