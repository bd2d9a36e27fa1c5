"""From items and a vector to boxes that only tag servers or the matcher open (O24)."""

from __future__ import annotations

from typing import Any

from crypto.samplers import Stream
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures.match.layout import MatchLayout
from protocols.disclosures.match.run import held
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.schema import Layout
from protocols.policy.guard import find
from protocols.wire.header import Header
from protocols.wire.run_context import RunContext


class MatchProtection(Protection):
    """What a client asks to be matched."""

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return the grid of a vector that is matched by tags."""
        chain = context.policy.chain(item.disclosure)
        if not find(chain, "match"):
            return None
        return MatchLayout(kinds[0], chain, context.dims(item))

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Hand the message to the client's own part in matching."""
        if not find(release.chain, "match"):
            return super().body(release, header, prepared)
        (message,) = release.messages
        layout = MatchLayout(type(message), release.chain, release.dims)
        stream = Stream(release.seeded("rounding"))
        return held(release.context).begin(message, layout, release.where, stream)


PROTECT = MatchProtection()
