"""From integers to two shares of one number a level."""

from __future__ import annotations

from typing import Any

import numpy as np

from crypto.samplers import Stream, entropy
from crypto.signing.canonical import canonical
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures.maximum.guards import Levels
from protocols.disclosures.maximum.levels import raised, split
from protocols.errors import UnfitMessage
from protocols.keys.boxes import close_box
from protocols.policy.guard import guard_of
from protocols.wire.codec import encode
from protocols.wire.header import Header
from protocols.wire.roles import Role


def box_info(header: Header, item: str, sender: str) -> bytes:
    """Return what a box is bound to: run, plan, item, place, cohort, what was given, and sender.

    Args:
        header: of the upload, or of a request about it: both say the same of these.
        item: id of the upload.
        sender: who sealed it.
    """
    place = [header.round, header.exchange, header.attempt, header.cohort, header.given]
    return b"secure-fgl/maximum\0" + canonical([header.run, header.plan, item, *place, sender])


class MaximumProtection(Protection):
    """One share is sealed to the aggregator with the envelope, one to the key authority inside."""

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Cap, raise and split; numbers and shares are drawn from the operating system (O15)."""
        levels = guard_of(release.chain, Levels)
        if levels is None:
            return super().body(release, header, prepared)
        context, (message,) = release.context, release.messages
        encode([message], release.dims)  # raises for a wrong shape
        values = np.ravel(np.asarray(getattr(message, message.fields[0].name)))
        if values.dtype.kind not in "iu" or (values < 0).any():
            raise UnfitMessage(f"{type(message).__name__} is not of whole numbers from 0 on.")
        capped = np.minimum(values.astype(np.int64), levels.top)
        numbers = raised(capped, levels.top, Stream(entropy(32)))
        shares = split(numbers, Stream(entropy(32)))
        first, second = (share.astype("<u8").tobytes() for share in shares)
        info = box_info(header, release.item.id, context.me.party.name)
        authority = context.roster.one(Role.KEY_AUTHORITY)
        box = close_box(second, context.me, authority, info)
        return first + box, bool((values > levels.top).any())


PROTECT = MaximumProtection()
