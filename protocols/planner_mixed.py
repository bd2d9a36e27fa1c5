"""The plan items of mixtures, and of the relay that takes the senders off them (O22, O23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crypto.hpke import SEAL_OVERHEAD
from crypto.signatures import SIGNATURE_BYTES
from protocols.control import Batch, Pool
from protocols.disclosures import Disclosure
from protocols.envelope import header_bytes
from protocols.guards import find
from protocols.messages import Message
from protocols.mix_boxes import mixture_box_bytes
from protocols.mix_layout import MixLayout
from protocols.mix_texts import BATCH, POOL
from protocols.roster import Role

if TYPE_CHECKING:
    from protocols.planner import Planner

_CLIENT, _AGGREGATOR, _RELAY = str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.RELAY)
RELAY_NAME = "relay"


def plan_mixtures(planner: Planner, name: str, kind: type[Message], times: tuple[int, int]) -> None:
    """Add one Ask's mixtures, and where the policy asks for a relay what passes through it."""
    id, chain = f"{name}.up.{Disclosure.MIXED}", planner.policy.chain(Disclosure.MIXED)
    layout, route = MixLayout(kind, chain, planner.dims), (_CLIENT, _AGGREGATOR)
    if not find(chain, "relay"):
        size = layout.body_bytes
        planner.add(id, route, (kind,), Disclosure.MIXED, times, body=size, layout=layout)
        return
    size = layout.most * mixture_box_bytes(layout)
    planner.add(id, route, (kind,), Disclosure.MIXED, times, body=size, layout=layout)
    clients = len(planner.clients)
    # Disjoint clusters may be relayed one by one.
    groups = max(1, clients // planner.policy.smallest_cohort)
    often = (times[0] * groups, times[1] * groups)
    header = header_bytes(id, planner.longest, planner.name(_AGGREGATOR))
    batch = {
        "batch_headers": clients * (2 + header + SIGNATURE_BYTES),
        "batch": clients * (size + SEAL_OVERHEAD),
    }
    network = "sender, recipient, time and size"
    for part, route, message, dims, said in (
        ("relay", (_AGGREGATOR, _RELAY), Batch, batch, {"relay": BATCH, "network": network}),
        ("relayed", (_RELAY, _AGGREGATOR), Pool, {"pool": clients * size}, {"aggregator": POOL}),
    ):
        kinds: tuple[type[Message], ...] = (message,)
        item = f"{name}.{part}.{Disclosure.MIXED}"
        planner.add(item, route, kinds, Disclosure.SEALED, often, dims=dims, said=said)
