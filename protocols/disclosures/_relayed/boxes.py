"""Boxes that a relay takes the senders off: their plan, words, and what the aggregator holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from crypto.errors import CryptoError
from crypto.hpke import SEAL_OVERHEAD, OpeningKey
from crypto.samplers import Stream, entropy
from crypto.signing import SIGNATURE_BYTES, canonical
from protocols.disclosures._base.view import Answers
from protocols.disclosures._relayed.messages import Batch, Pool
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.builder import PlanBuilder, Times
from protocols.plan.plan import Item, Plan
from protocols.plan.steps import Part, Step, item_id
from protocols.wire.envelope import Where, header_bytes
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext

# Boxes that a relay puts in order and only the aggregator opens (O23).
#
# Nothing in a box, around it or in its info names its sender, so nobody signs a single box either.
# Info binds it to run, plan, item, place in the run, cohort and what the cohort was given: a box of
# elsewhere does not open. Whoever shuffles can replace boxes by its own, one for one; it cannot
# change one, and how many there must be is known to whoever opens.


def box_info(context: RunContext, item: str, where: Where) -> bytes:
    """Return what every box of one Ask is bound to: the same for the whole cohort."""
    numbers = [where.round, where.exchange, where.attempt]
    place = [context.run, context.plan_digest, item, *numbers, context.cohort(where), where.given]
    return b"secure-fgl/relayed-box\0" + canonical(place)


def boxes_each(plan: Plan, up: Item) -> int:
    """Return how many boxes every client sends: one message, or as many as there may be mixtures.

    The named size says it and no message does, so it is the same for all clients.
    """
    return plan.dims["mixtures"] if up.disclosure is Disclosure.MIXED else 1


def cut_boxes(data: bytes, size: int) -> list[bytes]:
    """Return boxes that stand one after the other; raises BadEnvelope if one is there twice."""
    boxes = [data[start : start + size] for start in range(0, len(data), size)]
    if len(set(boxes)) != len(boxes):
        raise BadEnvelope("A box of a batch is there twice (O23).")
    return boxes


def shuffled(boxes: Sequence[bytes]) -> list[bytes]:
    """Return the boxes in an order from the operating system, every order as likely (O15).

    Sorted by 64-bit words; two equal ones, which would keep their order, come up for a million
    boxes once in 10^7 times.
    """
    order = np.argsort(Stream(entropy(32)).words(len(boxes)), kind="stable")
    return [boxes[place] for place in order]


def opened(boxes: Sequence[bytes], key: OpeningKey, info: bytes) -> list[bytes]:
    """Return what is in the boxes; raises BadEnvelope for one that was not sealed for this Ask."""
    found = []
    for box in boxes:
        try:
            found.append(key.open(info, box))
        except CryptoError as error:
            raise BadEnvelope(
                "A box of a batch does not open.",
                why="a client or the relay sealed it for another Ask, or changed it; nobody can "
                "tell which client's it is",
            ) from error
    return found


# In words: what a relay gets, and what it returns (O23).

BATCH = "who took part when; sealed boxes, as many and as large for every client, and no content"
_POOLS = {
    Disclosure.MIXED: "the cohort's mixtures in one order that tells no sender; content still "
    "hints at senders",
    Disclosure.NOISED: "the cohort's noised messages in one order that tells no sender; sender, "
    "time and size of what went to the relay are known",
}


def pool_of(part: Disclosure) -> str:
    """Return what the aggregator learns of what a relay returns."""
    return _POOLS[part]


# The plan items of a relay: what it is handed and what it returns (O23).

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


# What the aggregator holds of answers whose senders a relay takes off (O23).


class Relayed(Answers):
    """Answers that pass through a relay where the policy asks for one.

    Attributes:
        disclosure: that they are of.
        pool: bodies made of what was in all survivors' boxes, once the relay returned them.
    """

    disclosure: ClassVar[Disclosure]

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.pool: tuple[bytes, ...] | None = None

    @property
    def relayed(self) -> bool:
        """Whether they go to a relay first."""
        return self._context.relays(self.item)

    @classmethod
    def fixing(cls, context: RunContext, name: str) -> bool:
        """Tell whether a relay takes the senders off: who counts is fixed with that."""
        return context.relays(context.find(name, cls.disclosure, Step.UP))

    def take(self, incoming: Incoming) -> None:
        """Keep one client's answer; raises BadEnvelope if the relay would refuse it."""
        if self.relayed:
            self._check_key(incoming)
        super().take(incoming)

    def pooled(self, contents: Sequence[bytes]) -> None:
        """Keep what was in the boxes of all survivors, in the relay's order.

        Raises:
            BadEnvelope: a content that cannot be read.
        """
        self.pool = tuple(contents)
