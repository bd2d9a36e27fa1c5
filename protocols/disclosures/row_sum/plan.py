"""The plan items of rows: what travels between an answer and the sums that receivers open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocols.disclosures._base.plan import Planning
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.guards import Rows
from protocols.forms import Exchange, Form
from protocols.plan.builder import PlanBuilder
from protocols.policy.guard import Guard, guard_of

PLACES = "row_places"
"""Dimension of the rows that a client is told at once; the plan sizes it."""


class RowSumPlanning(Planning):
    """Rows in clear, block by block."""

    def dims(
        self, form: Form[Any], chain: Sequence[Guard], dims: Mapping[str, int], records: int
    ) -> dict[str, int]:
        """Return how many rows a client is told at once."""
        if "block" not in dims or not chain:
            return {}
        rows = guard_of(chain, Rows)
        return {PLACES: dims["block"] if rows is None or rows.unsafe else rows.rows}

    def most(self, plan: PlanBuilder, exchange: Exchange) -> int | None:
        """Return how often an exchange brings rows back in a run: in the rounds where it is due."""
        if exchange.due is None:
            return None
        return exchange.per_round * exchange.due(plan.rounds)


PLAN = RowSumPlanning(Disclosure.ROW_SUM)
