"""The plan items of a relay: what it is handed and what it returns (O23)."""

from __future__ import annotations

from crypto.hpke import SEAL_OVERHEAD
from crypto.signing.signatures import SIGNATURE_BYTES
from protocols.disclosures._relayed.messages import Batch, Pool
from protocols.disclosures._relayed.words import BATCH, pool_of
from protocols.disclosures.names import Disclosure
from protocols.messages import Message
from protocols.plan.builder import PlanBuilder, Times
from protocols.plan.steps import Step, item_id
from protocols.wire.envelope import header_bytes
from protocols.wire.roles import Role

_CLIENT, _AGGREGATOR, _RELAY = str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.RELAY)


def plan_relay(planner: PlanBuilder, name: str, part: Disclosure, size: int, times: Times) -> None:
    """Add what passes between aggregator and relay for one Ask.

    Args:
        planner: of the plan.
        name: of the Ask.
        part: the disclosure whose senders are taken off.
        size: of all boxes of one client.
        times: of the Ask.
    """
    clients = len(planner.clients)
    often = planner.often(times)  # disjoint clusters may be relayed one by one
    upload = item_id(name, part, Step.UP, _CLIENT)
    header = header_bytes(upload, planner.longest, planner.name(_AGGREGATOR))
    batch = {
        "batch_headers": clients * (2 + header + SIGNATURE_BYTES),
        "batch": clients * (size + SEAL_OVERHEAD),
    }
    network = "sender, recipient, time and size"
    pooled = {"aggregator": pool_of(part)}
    for step, route, message, dims, said in (
        (Step.RELAY, (_AGGREGATOR, _RELAY), Batch, batch, {"relay": BATCH, "network": network}),
        (Step.RELAYED, (_RELAY, _AGGREGATOR), Pool, {"pool": clients * size}, pooled),
    ):
        kinds: tuple[type[Message], ...] = (message,)
        sealed = Disclosure.SEALED
        planner.add(name, part, step, route, kinds, sealed, often, dims=dims, said=said)
