"""The plan's sizes of rows that one client shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocols.disclosures._base.plan import Planning
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.decoys import planned_rows
from protocols.forms import Form
from protocols.policy.guard import Guard


class NoisedPlanning(Planning):
    """Rows of one size, whatever the client holds."""

    def dims(
        self, form: Form[Any], chain: Sequence[Guard], dims: Mapping[str, int], records: int
    ) -> dict[str, int]:
        """Return how many rows a client sends."""
        return planned_rows(chain, dims)


PLAN = NoisedPlanning(Disclosure.NOISED)
