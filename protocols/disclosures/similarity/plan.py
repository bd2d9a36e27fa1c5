"""The plan items of vectors that are compared (O3)."""

from __future__ import annotations

from protocols.disclosures._base.plan import Planning
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures._evaluated.plan import plan_results, plan_upload
from protocols.disclosures.names import Disclosure
from protocols.messages import Message
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.steps import Step, item_id


class SimilarityPlanning(Planning):
    """Ciphertexts, and the cosines that are opened of them."""

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the uploads of an Ask, and what it takes to open their cosines."""
        if evaluated(plan.policy.chain(self.disclosure)) is None:
            super().up(plan, name, kinds, times)
            return
        signs = plan.splits is not None and plan.splits.message == kinds[0].__name__
        shape = plan_upload(plan, name, kinds, times)
        upload = item_id(name, self.disclosure, Step.UP, UP[0])
        plan_results(plan, name, upload, shape, times, signs=signs)


PLAN = SimilarityPlanning(Disclosure.SIMILARITY)
