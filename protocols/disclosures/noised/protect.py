"""From a client's message to rows among decoys, clipped and noised, or to a randomised one."""

from __future__ import annotations

from typing import Any

from crypto.samplers import Stream, entropy
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._relayed.boxes import box_info
from protocols.disclosures.noised.decoys import Decoyer
from protocols.disclosures.noised.randomised import randomised
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.schema import Layout
from protocols.policy.guard import find
from protocols.privacy.own_target import check_own
from protocols.wire.codec import encode
from protocols.wire.header import Header
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext


class NoisedProtection(Protection):
    """Decoys may be drawn once in a run, so they are kept."""

    def own(self) -> Decoyer:
        """Return which decoys were drawn."""
        return Decoyer()

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return no grid; raises NotInPlan if the planned noise is not the policy's."""
        chain = context.policy.chain(item.disclosure)
        if item.noise is not None or find(chain, "own_noise"):
            check_own(context.plan, context.policy)
        return None

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Randomise, or add decoys and noise."""
        if find(release.chain, "own_noise"):
            # Whether a value was clipped is not kept: here it would be nobody's but the value's.
            draws = Stream(entropy(32))
            messages, dims = release.messages, release.dims
            said = randomised(messages, dims, release.item, release.chain, draws)
            return _boxed(said, release), False
        ready = [release.own.ready(m, release.chain, release.dims) for m in release.messages]
        body = encode([message for message, _ in ready], release.dims, release.known)
        return body, any(clipped for _, clipped in ready)


def _boxed(body: bytes, release: Release) -> bytes:
    """Return the one box of a message that passes through a relay; any other as it is (O23)."""
    context, item = release.context, release.item
    if not context.relays(item):
        return body
    reader = context.roster.one(Role.AGGREGATOR)
    return reader.seal.seal(box_info(context, item.id, release.where), body)


PROTECT = NoisedProtection()
