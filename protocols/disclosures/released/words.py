"""What plans say of RELEASED messages."""

from __future__ import annotations

from protocols.disclosures._base.words import Planned, Words, listed
from protocols.disclosures.names import Disclosure
from protocols.plan.models import AS_SENT, BOUNDED

CRAFTED = (
    "{}: the model is the aggregator's word; a crafted one makes a total tell single records, "
    "which no client notices (A20)"
)
SLOWLY = (
    "{}: a client refuses a model that moved further than honest clients can move it; within that "
    "an aggregator can still steer it, and a crafted model makes a total tell single records (A20)"
)


class ReleasedWords(Words):
    """The global model, or flags and counters."""

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        if not model:
            return "flags, counters and public seeds; no model"
        return "what was computed from disclosed totals (the global model)"

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of models that clients do not compute themselves."""
        ways = (AS_SENT, CRAFTED), (BOUNDED, SLOWLY)
        return [listed(text, [i for i in plan.items if i.model == how]) for how, text in ways]


WORDS = ReleasedWords(Disclosure.RELEASED)
