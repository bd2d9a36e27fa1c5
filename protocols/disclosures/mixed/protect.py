"""From records to mixtures, and into boxes for a relay (O22, O23)."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._relayed.boxes import box_info
from protocols.disclosures.mixed.boxes import into_boxes
from protocols.disclosures.mixed.groups import Numbers
from protocols.disclosures.mixed.layout import MixLayout
from protocols.disclosures.mixed.mixing import Mixer
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.schema import Layout
from protocols.wire.header import Header
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext


class MixedProtection(Protection):
    """Groups are drawn once in a run; only what they hold together leaves."""

    def own(self) -> Mixer:
        """Return who is mixed with whom."""
        return Mixer()

    def captured(self, own: Mixer) -> Numbers | None:
        """Return the groups, for audits at this client."""
        return own.groups

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return the grid of mixtures."""
        chain = context.policy.chain(item.disclosure)
        return MixLayout(kinds[0], chain, context.dims(item))

    def prepare(self, release: Release) -> tuple[bytes, bool]:
        """Mix. The ledger says that groups were drawn or mixtures withheld, and not which."""
        context, item, where, (message,) = (
            release.context,
            release.item,
            release.where,
            release.messages,
        )
        layout = MixLayout(type(message), release.chain, release.dims)
        body, clipped, told = release.own.mixed(message, layout, release.seeded("mixing"))
        for kind, facts in told.items():
            place = {"exchange": where.exchange, "item": item.id, "round": where.round}
            release.record(kind, {**place, **facts})
        if context.relays(item):
            reader, info = (
                context.roster.one(Role.AGGREGATOR),
                box_info(context, item.id, where),
            )
            body = into_boxes(body, layout, reader.seal, info)
        return body, clipped

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Return what was mixed before the header was made."""
        body, clipped = prepared
        return body, clipped


PROTECT = MixedProtection()
