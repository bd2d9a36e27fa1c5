"""Which chain protects mixtures, and which messages can be mixed (O22, O23)."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.rules import Chain, Limits, Rules
from protocols.disclosures.mixed.guards import Blur, Mix
from protocols.disclosures.mixed.layout import mixed_fields
from protocols.forms import Form
from protocols.messages import Message
from protocols.policy.guard import find, guard_of
from protocols.policy.guards import Clip

_CHAIN = ("clip", "mix", "seal")


class MixedRules(Rules):
    """Records, clipped and mixed; noise and a relay may be added."""

    protecting = frozenset({"mix", "unsafe_clear"})
    applied = protecting | {"clip", "blur", "relay", "seal"}
    order = "clip, mix, blur, relay, seal"
    from_records = True

    def check(self, chain: Chain) -> None:
        """Hold what is mixed to its chain, and noise to what can be drawn well."""
        if not find(chain, "mix"):
            super().check(chain)
            return
        if tuple(g.guard for g in chain if g.guard not in ("blur", "relay")) != _CHAIN:
            raise ValueError(f"needed are {', '.join(_CHAIN)}, and 'blur' or 'relay' before 'seal'")
        clip, mix, blur = guard_of(chain, Clip), guard_of(chain, Mix), guard_of(chain, Blur)
        if not clip or clip.norm != "l2":
            raise ValueError("'mix' needs 'clip' with norm l2 before it: a record is one vector")
        if mix and blur:
            blur.steps(mix)

    def accounted(self, chain: Chain) -> bool:
        """A record stands in many mixtures, so their noise is not accounted."""
        return find(chain, "mix") is None

    def alone(self, chain: Chain) -> bool:
        """Records are grouped once in a run, for one message."""
        return True

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse single records; raises TypeError for a message that cannot be mixed."""
        mixed_fields(kind)
        if not (form.unmixed and find(policy.rules.get(kind.disclosure, ()), "mix")):
            return None
        return (
            f"message {kind.__name__} would hold single records (mixup: false), which no rule "
            "that mixes lets out; have them mixed, or take unsafe_plaintext for a baseline on "
            "data that may be seen"
        )


RULES = MixedRules()
