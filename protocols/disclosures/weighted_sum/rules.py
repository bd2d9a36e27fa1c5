"""Which chain protects vectors that are weighed, and how many a row rests on (O10)."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.rules import Chain, Limits
from protocols.disclosures._evaluated.rules import EvaluatedRules
from protocols.disclosures.weighted_sum.guards import Weigh
from protocols.forms import Form
from protocols.messages import Message
from protocols.policy.admission import asked_holders, has_weights
from protocols.policy.guard import guard_of
from protocols.policy.guards import Quantise

BITS = 15  # two values a coefficient; more would double what every party sends


class WeightedSumRules(EvaluatedRules):
    """Integers, encrypted; each receiver's combination is opened blind."""

    protecting = frozenset({"weigh", "unsafe_clear"})
    applied = protecting | {"clip", "quantise", "seal"}
    chain = ("clip", "quantise", "weigh", "seal")
    order = "clip, quantise, weigh, seal"

    def check(self, chain: Chain) -> None:
        """Hold it to its one chain, and integers to what a coefficient holds."""
        super().check(chain)
        quantise = guard_of(chain, Quantise)
        if guard_of(chain, Weigh) and quantise and quantise.bits > BITS:
            raise ValueError(
                f"'quantise' takes at most {BITS} bits where integers are weighed: a coefficient "
                "must hold a whole row of weights times the largest of them"
            )

    def check_policy(self, chain: Chain, policy: Limits) -> None:
        """Refuse rows of fewer others than the policy asks for."""
        weigh = guard_of(chain, Weigh)
        if weigh and weigh.top is not None and weigh.top <= policy.others:
            raise ValueError(f"top: more than the {policy.others} others of minimum_cohort")

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse what cannot be weighed, and rows of items that one client may hold (O12)."""
        if found := super().objection(kind, form, policy):
            return found
        asks = asked_holders(policy)
        if asks and form.rows and has_weights(kind, form.exchanges):
            of = "has weights of items that one client may hold"
            return f"message {kind.__name__} {of}, and {asks}"
        return None

    def not_computed(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse rows of which colluders, or a small group, would learn too much."""
        if policy.colluders:
            # Each row is checked alone, and two receivers can take one's row off the other's.
            return f"rows of message {kind.__name__} tell colluding receivers more than each alone"
        if form.top is not None and form.top <= policy.others:
            return (
                f"rows of message {kind.__name__} would weigh {form.top} others at most (top), "
                f"and must rest on {policy.others} in effect; give no top, or more than "
                f"{policy.others}"
            )
        return None


RULES = WeightedSumRules()
