"""The plan items of mixtures, and of the relay that takes the senders off them (O22, O23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crypto.hpke import SEAL_OVERHEAD
from crypto.signatures import SIGNATURE_BYTES
from protocols.disclosures.mixed.boxes import mixture_box_bytes
from protocols.disclosures.mixed.layout import MixLayout
from protocols.disclosures.mixed.words import BATCH, POOL
from protocols.disclosures.names import Disclosure
from protocols.messages import Message
from protocols.plan.steps import Step, item_id
from protocols.policy.guard import find
from protocols.wire.control import Batch, Pool
from protocols.wire.envelope import header_bytes
from protocols.wire.roster import Role

if TYPE_CHECKING:
    from protocols.plan.planner import Planner

_CLIENT, _AGGREGATOR, _RELAY = str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.RELAY)
RELAY_NAME = "relay"


def plan_mixtures(planner: Planner, name: str, kind: type[Message], times: tuple[int, int]) -> None:
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
    # Disjoint clusters may be relayed one by one.
    groups = max(1, clients // planner.policy.smallest_cohort)
    often = (times[0] * groups, times[1] * groups)
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
