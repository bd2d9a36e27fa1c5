"""The plan items of mixtures, and of the relay that takes the senders off them (O22, O23)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crypto.hpke import SEAL_OVERHEAD
from crypto.signing.signatures import SIGNATURE_BYTES
from protocols.disclosures._base.plan import Planning
from protocols.disclosures.mixed.boxes import mixture_box_bytes
from protocols.disclosures.mixed.layout import MixLayout, planned_mixtures
from protocols.disclosures.mixed.messages import Batch, Pool
from protocols.disclosures.mixed.words import BATCH, POOL
from protocols.disclosures.names import Disclosure
from protocols.forms import Form
from protocols.messages import Message
from protocols.plan.builder import PlanBuilder, Times
from protocols.plan.steps import Step, item_id
from protocols.policy.guard import Guard, find
from protocols.wire.envelope import header_bytes
from protocols.wire.roles import Role

_CLIENT, _AGGREGATOR, _RELAY = str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.RELAY)


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
    clients = len(planner.clients)
    often = planner.often(times)  # disjoint clusters may be relayed one by one
    upload = item_id(name, part, Step.UP, _CLIENT)
    header = header_bytes(upload, planner.longest, planner.name(_AGGREGATOR))
    batch = {
        "batch_headers": clients * (2 + header + SIGNATURE_BYTES),
        "batch": clients * (size + SEAL_OVERHEAD),
    }
    network = "sender, recipient, time and size"
    for step, route, message, dims, said in (
        (Step.RELAY, (_AGGREGATOR, _RELAY), Batch, batch, {"relay": BATCH, "network": network}),
        (Step.RELAYED, (_RELAY, _AGGREGATOR), Pool, {"pool": clients * size}, {"aggregator": POOL}),
    ):
        kinds: tuple[type[Message], ...] = (message,)
        sealed = Disclosure.SEALED
        planner.add(name, part, step, route, kinds, sealed, often, dims=dims, said=said)


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
