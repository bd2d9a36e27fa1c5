"""What an Ask takes that hands out a total in place of the model."""

from __future__ import annotations

from protocols.disclosures._base.plan import Planning
from protocols.disclosures.names import Disclosure
from protocols.disclosures.released.messages import SharedTotal
from protocols.disclosures.sum.plan import total_sizes
from protocols.forms import Exchange
from protocols.plan.builder import DOWN, UP, PlanBuilder, Times
from protocols.plan.models import RECOMPUTED
from protocols.plan.steps import Service, Step
from protocols.wire.control import Acknowledgement


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
