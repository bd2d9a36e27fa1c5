"""What plans say of RELEASED messages."""

from __future__ import annotations

from protocols.disclosures._base.words import Planned, Words, listed
from protocols.disclosures.names import Disclosure
from protocols.plan.models import AS_SENT, BOUNDED
from protocols.plan.steps import Step

CRAFTED = (
    "{}: the model is the aggregator's word; a crafted one makes a total tell single records, "
    "which no client notices (A20)"
)
WITHIN = (
    "{}: a client refuses a model of which a weight moved by more than {:g} in a round; within "
    "that it is the aggregator's word, and a crafted one makes a total tell single records (A20)"
)
RETOLD = (
    "what single clients said in clear, each by itself; what was computed from disclosed totals"
)
TOLD_ON = "UNSAFE: {}: every client reads what single other clients said in clear"


class ReleasedWords(Words):
    """The global model, or flags and counters."""

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        if not model:
            return "flags, counters and public seeds; no model"
        return "what was computed from disclosed totals (the global model)"

    def retold(self) -> str:
        """Return what a client is given that reads other clients' messages."""
        return RETOLD

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of models that clients do not compute themselves."""
        found = [listed(CRAFTED, [item for item in plan.items if item.model == AS_SENT])]
        found.append(listed(TOLD_ON, [i for i in plan.items if i.learns.get("client") == RETOLD]))
        if bounded := [item for item in plan.items if item.model == BOUNDED]:
            names = {item.exchange for item in bounded}
            sums = [i for i in plan.items if i.part is Disclosure.SUM and i.step is Step.UP]
            fields = [f for i in sums if i.exchange in names for m in i.messages for f in m.fields]
            most = plan.reach * max(float(field.bound or 0) for field in fields)
            found.append(WITHIN.format(", ".join(item.id for item in bounded), most))
        return found


WORDS = ReleasedWords(Disclosure.RELEASED)
