"""From a client's terms to boxes that only tag servers or the matcher open (O24)."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures.row_sum.guards import WIDTH
from protocols.disclosures.row_sum.run import held, rows_guard
from protocols.errors import UnfitMessage
from protocols.messages import RowSumMessage
from protocols.wire.header import Header


class RowSumProtection(Protection):
    """What a client's terms are added up from."""

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Hand the terms to the client's own part in rows; the body holds blinded points."""
        context = release.context
        if rows_guard(context.policy) is None:
            return super().body(release, header, prepared)
        (message,) = release.messages
        said = message._unsummed if isinstance(message, RowSumMessage) else None
        if said is None:
            raise UnfitMessage(
                f"{type(message).__name__} holds sums, and rows are found by tags.",
                fix="return the client's terms by `unsummed`; nothing was sent",
            )
        cohort, key = context.cohort(release.where), release.seeded("rounding")
        width = release.item.dims[WIDTH]
        return held(context).begin(said, width, release.where, cohort, key), False


PROTECT = RowSumProtection()
