"""The plan items of a maximum: two shares go up, and the second ones are added elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from protocols.disclosures._base.plan import Planning
from protocols.disclosures.maximum.guards import Levels
from protocols.disclosures.maximum.messages import SecondShares, SecondTotal
from protocols.disclosures.names import Disclosure
from protocols.keys.boxes import BOX_OVERHEAD
from protocols.messages import Message
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.steps import Step
from protocols.policy.guard import guard_of
from protocols.wire.roles import Role

_AGGREGATOR, _AUTHORITY = str(Role.AGGREGATOR), str(Role.KEY_AUTHORITY)


def share_bytes(kind: type[Message], top: int, dims: Mapping[str, int]) -> int:
    """Return the size of one share of a message: 8 bytes for each level and integer."""
    return 8 * top * int(np.prod(kind.fields[0].sizes(dims), dtype=np.int64))


class MaximumPlanning(Planning):
    """A share for the aggregator and a box for the key authority."""

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the shares of an Ask, and what it takes to open their total."""
        levels = guard_of(plan.policy.chain(self.disclosure), Levels)
        if levels is None:
            return super().up(plan, name, kinds, times)
        share = share_bytes(kinds[0], levels.top, plan.dims)
        box, part, often = share + BOX_OVERHEAD, self.disclosure, plan.often(times)
        plan.add(name, part, Step.UP, UP, kinds, part, times, body=share + box)
        said = {"key_authority": "uniform noise, and who took part when"}
        dims, sealed = {"level_boxes": box * len(plan.clients)}, Disclosure.SEALED
        route = (_AGGREGATOR, _AUTHORITY)
        plan.add(name, part, Step.OPEN, route, (SecondShares,), sealed, often, dims=dims, said=said)
        said, dims = {"aggregator": part.meaning}, {"level_total": share}
        route = (_AUTHORITY, _AGGREGATOR)
        plan.add(
            name, part, Step.OPENED, route, (SecondTotal,), sealed, often, dims=dims, said=said
        )
        return None


PLAN = MaximumPlanning(Disclosure("MAXIMUM"))
