"""The plan items of rows that are weighed (O10)."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.disclosures._base.plan import Planning
from protocols.disclosures._evaluated.ciphers import shape_of
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures._evaluated.plan import plan_results, plan_upload
from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.steps import Step, item_id
from protocols.policy.guard import Guard
from protocols.wire.control import Row


class WeightedSumPlanning(Planning):
    """Ciphertexts that come back in one Ask, and rows that a later one hands out."""

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the uploads of an Ask; rows are opened when they are handed out."""
        if evaluated(plan.policy.chain(self.disclosure)) is None:
            super().up(plan, name, kinds, times)
        else:
            plan_upload(plan, name, kinds, times)

    def handed_down(self, kind: type[Message], chain: Sequence[Guard]) -> type[Message]:
        """Return what holds an opened row, still blinded; in clear the message itself."""
        return Row if evaluated(chain) is not None else kind

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Add what it takes to open the rows that an Ask hands out."""
        if evaluated(plan.policy.chain(self.disclosure)) is None:
            return {}
        (kind,) = (k for k in exchange.given if k.disclosure is self.disclosure)
        shape = shape_of((kind,), plan.policy, plan.dims)
        sources = [e.name for e in plan.exchanges if kind in e.back]
        upload = item_id(max(sources, key=len), self.disclosure, Step.UP, UP[0])
        plan_results(plan, exchange.name, upload, shape, times)
        return {"row_box": shape.row_bytes}


PLAN = WeightedSumPlanning(Disclosure.WEIGHTED_SUM)
