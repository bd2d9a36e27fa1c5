"""The tag server's part in rows: as for `match`, once in a run."""

from __future__ import annotations

from typing import ClassVar

from protocols.disclosures.match.protocol.wire import MatchRun
from protocols.disclosures.match.tag_server import TagService
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.run import needed_run
from protocols.plan.steps import Step
from protocols.sessions.part import Takes


class RowTagService(TagService):
    """Holds one share of the key of rows' tags."""

    called: ClassVar[str] = "row_tags"
    part: ClassVar[Disclosure] = Disclosure.ROW_SUM
    entry: ClassVar[str] = "row_tags"

    def _run(self) -> MatchRun:
        return needed_run(self._context)

    def _catalogue(self, name: str) -> int:
        """Return how many public numbers of nodes there are, as the plan says."""
        return self._context.plan.dims["nodes"]

    takes: ClassVar[Takes] = {
        (Disclosure.ROW_SUM, Step.POINTS): TagService._answer,
        (Disclosure.ROW_SUM, Step.SECOND_POINTS): TagService._answer,
    }


TAG_SERVER = RowTagService
