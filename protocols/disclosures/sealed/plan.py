"""The plan items of rows that clients address to each other."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.disclosures._base.plan import Planning
from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange
from protocols.keys.boxes import box_bytes, by_peers
from protocols.messages import Message
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.steps import Step
from protocols.policy.guard import Guard
from protocols.wire.control import Boxes


class SealedPlanning(Planning):
    """One box for every client, sealed to it alone."""

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the boxes of an Ask."""
        size = sum(box_bytes(kind, plan.dims) for kind in kinds) * len(plan.clients)
        place = (name, self.disclosure, Step.UP, UP, kinds, self.disclosure, times)
        plan.add(*place, body=size, boxed=True)

    def handed_down(self, kind: type[Message], chain: Sequence[Guard]) -> type[Message]:
        """Return what holds rows that peers sealed."""
        return Boxes if by_peers(kind) else kind

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Return the size of all boxes that an Ask hands to one client."""
        boxes = sum(box_bytes(kind, plan.dims) for kind in exchange.given if by_peers(kind))
        return {"boxes": boxes * len(plan.clients)} if boxes else {}


PLAN = SealedPlanning(Disclosure.SEALED)
