"""The plan items of mixtures, and of the relay that takes the senders off them (O22, O23)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocols.disclosures._base.plan import Planning
from protocols.disclosures._relayed.plan import plan_relay
from protocols.disclosures.mixed.boxes import mixture_box_bytes
from protocols.disclosures.mixed.layout import MixLayout, planned_mixtures
from protocols.disclosures.names import Disclosure
from protocols.forms import Form
from protocols.messages import Message
from protocols.plan.builder import PlanBuilder, Times
from protocols.plan.steps import Step
from protocols.policy.guard import Guard, find
from protocols.wire.roles import Role

_CLIENT, _AGGREGATOR = str(Role.CLIENT), str(Role.AGGREGATOR)


def _plan_mixtures(planner: PlanBuilder, name: str, kind: type[Message], times: Times) -> None:
    """Add one Ask's mixtures, and where the policy asks for a relay what passes through it."""
    part, chain = Disclosure.MIXED, planner.policy.chain(Disclosure.MIXED)
    layout, route = MixLayout(kind, chain, planner.dims), (_CLIENT, _AGGREGATOR)
    if not find(chain, "relay"):
        size = layout.body_bytes
        planner.add(name, part, Step.UP, route, (kind,), part, times, body=size, layout=layout)
        return
    size = layout.most * mixture_box_bytes(layout)
    planner.add(name, part, Step.UP, route, (kind,), part, times, body=size, layout=layout)
    plan_relay(planner, name, part, size, times)


class MixedPlanning(Planning):
    """Mixtures on a grid, and what a relay does with them."""

    def dims(
        self, form: Form[Any], chain: Sequence[Guard], dims: Mapping[str, int], records: int
    ) -> dict[str, int]:
        """Return how many mixtures a client sends."""
        return planned_mixtures(form, chain, dims, records)

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the mixtures of an Ask."""
        _plan_mixtures(plan, name, kinds[0], times)


PLAN = MixedPlanning(Disclosure.MIXED)
