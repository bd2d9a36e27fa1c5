"""From one row for each client to boxes that each of them alone opens."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures.names import Disclosure
from protocols.keys.boxes import close_boxes
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.wire.header import Header


class SealedProtection(Protection):
    """What an algorithm seals to peers; the layer's own sealed messages are sealed as a whole."""

    def boxed(self, item: Item) -> bool:
        """Tell whether it is what clients seal to each other."""
        return (item.part, item.step) == (Disclosure.SEALED, Step.UP)

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Seal each row to its client."""
        if not self.boxed(release.item):
            return super().body(release, header, prepared)
        context, where = release.context, (header.run, header.exchange, release.item.id)
        boxes = (
            close_boxes(message, context.me, context.roster, release.dims, where)
            for message in release.messages
        )
        return b"".join(boxes), False


PROTECT = SealedProtection()
