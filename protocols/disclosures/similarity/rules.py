"""Which chain protects vectors that are compared."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.rules import Limits
from protocols.disclosures._evaluated.rules import EvaluatedRules
from protocols.disclosures.names import Disclosure
from protocols.forms import Form
from protocols.messages import Message, SimilarityMessage
from protocols.policy.guard import find


class SimilarityRules(EvaluatedRules):
    """Directions, encrypted; one number a pair is opened."""

    protecting = frozenset({"cosine", "unsafe_clear"})
    applied = protecting | {"normalise", "seal"}
    chain = ("normalise", "cosine", "seal")
    order = "normalise, cosine, seal"

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse splits that the policy's cohorts do not allow, or that leave few clients apart."""
        splits = form.splits
        if splits is not None and splits.kind is kind:
            if policy.cohort_changes == "fixed":
                return "it splits clients into clusters, and cohort_changes is fixed"
            summed = policy.rules.get(Disclosure.SUM, ())
            if splits.guard == "leave" and not find(summed, "unsafe_clear"):
                return (
                    "under cut_guard: leave the totals before and after a split differ by the side "
                    "that left; that is Unsafe, and possible where sums are in clear anyway"
                )
        return super().objection(kind, form, policy)

    def not_computed(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse a message that is not one vector, or is not compared by cosines."""
        if issubclass(kind, SimilarityMessage) and kind.measure is not None:
            return f"message {kind.__name__} is compared otherwise than by cosines: only in clear"
        if len(kind.fields) == 1:
            return None
        return f"message {kind.__name__} holds more than the one vector that is compared"


RULES = SimilarityRules()
