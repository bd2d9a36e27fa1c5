"""RELEASED: its rules, plan and words."""

from __future__ import annotations

from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.rules import Rules
from protocols.disclosures._base.words import Planned, Words, listed
from protocols.disclosures.names import Disclosure
from protocols.disclosures.released.messages import SharedTotal
from protocols.disclosures.sum.disclosure import total_sizes
from protocols.forms import Exchange
from protocols.plan.builder import DOWN, UP, PlanBuilder, Times
from protocols.plan.learns import AS_SENT, BOUNDED, RECOMPUTED
from protocols.plan.steps import Service, Step
from protocols.wire.control import Acknowledgement

# Which guard a RELEASED message has.


class ReleasedRules(Rules):
    """Sealed to its receiver."""

    protecting = frozenset({"seal"})
    applied = protecting


RULES = ReleasedRules()


# What an Ask takes that hands out a total in place of the model.


class ReleasedPlanning(Planning):
    """Models travel as they are, or as what they are computed from."""

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Return the sizes of a total that an Ask hands out."""
        recomputed = plan.models.of_exchange(exchange) == RECOMPUTED
        return total_sizes(plan) if recomputed else {}

    def epoch(self, plan: PlanBuilder, planned: object) -> None:
        """Add the totals that a client missed while it was away."""
        if plan.models.how != RECOMPUTED:
            return
        # Each total once, and in each round one that does not arrive.
        part, often, sizes = Service.TOTALS, (0, 2 * plan.rounds), total_sizes(plan)
        said = {"client": "a total that others were handed while it was away"}
        kinds, disclosure = (SharedTotal,), Disclosure.RELEASED
        plan.add("", part, Step.DOWN, DOWN, kinds, disclosure, often, dims=sizes, said=said)
        said, sealed = {"aggregator": "that the total arrived"}, Disclosure.SEALED
        plan.add("", part, Step.ACK, UP, (Acknowledgement,), sealed, often, said=said)


PLAN = ReleasedPlanning(Disclosure.RELEASED)


# What plans say of RELEASED messages.

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
