"""The plan items of rows: what travels between an answer and the sums that receivers open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.words import NETWORK
from protocols.disclosures.match.messages import Box, Bundle, Canary
from protocols.disclosures.match.protocol.wire import Kind
from protocols.disclosures.match.words import BOXED, HALFWAY, POINTS, SECOND_POINTS
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.guards import WIDTH, Rows
from protocols.disclosures.row_sum.messages import RowParts, RowTotals
from protocols.disclosures.row_sum.protocol.wire import box_bytes, slot_bytes
from protocols.disclosures.row_sum.words import MATCHER, NOISY_ROWS, PARTS, ROWS, TOLD
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.plan.builder import PlanBuilder, Times
from protocols.plan.steps import Step
from protocols.policy.guard import Guard, guard_of
from protocols.privacy.row_noise import wanted
from protocols.wire.roles import Role

_CLIENT, _AGGREGATOR = str(Role.CLIENT), str(Role.AGGREGATOR)
_SERVER, _MATCHER = str(Role.TAG_SERVER), str(Role.MATCHER)

PLACES = "row_places"
"""Dimension of the rows that a client is told at once; the plan sizes it."""


class RowSumPlanning(Planning):
    """Rows in clear, block by block; or found by tags, and added up under masks."""

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

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add one Ask's rows, and everything that follows them."""
        rows = guard_of(plan.policy.chain(self.disclosure), Rows)
        if rows is None or rows.unsafe:
            super().up(plan, name, kinds, times)
            return
        _plan_rows(plan, name, kinds[0], rows, times)

    def handed_down(self, kind: type[Message], chain: Sequence[Guard]) -> type[Message]:
        """Return what holds masked sums; in clear the message itself."""
        rows = guard_of(chain, Rows)
        return kind if rows is None or rows.unsafe else RowTotals

    def handed_said(self, plan: PlanBuilder) -> dict[str, str] | None:
        """Return who learns what of an Ask that hands rows out."""
        rows = guard_of(plan.policy.rules.get(self.disclosure, ()), Rows)
        if rows is None or rows.unsafe:
            return None
        return {_CLIENT: NOISY_ROWS if rows.noised else ROWS, "network": NETWORK}

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Return the sizes of masked sums for one client."""
        rows = guard_of(plan.policy.rules.get(self.disclosure, ()), Rows)
        if rows is None or rows.unsafe:
            return {}
        return slot_dims(plan, rows)


def slot_dims(plan: PlanBuilder, rows: Rows) -> dict[str, int]:
    """Return the sizes of one client's slots of masked sums."""
    mask = -(-len(plan.clients) // 8)
    return {"row_slots": rows.rows * slot_bytes(plan.dims["width"], mask)}


def _plan_rows(plan: PlanBuilder, name: str, kind: type[Message], rows: Rows, times: Times) -> None:
    """Add what makes and compares tags, and what is added up.

    Raises:
        CohortTooSmall: fewer clients than a receiver and those that a row rests on.
    """
    clients = len(plan.clients)
    plan.policy.check_cohort(clients)
    width = kind.fields[0].sizes(plan.dims)[1]
    part, sealed = Disclosure.ROW_SUM, Disclosure.SEALED
    up, down = (_CLIENT, _AGGREGATOR), (_AGGREGATOR, _CLIENT)
    to_server, from_server = (_AGGREGATOR, _SERVER), (_SERVER, _AGGREGATOR)

    def add(
        step: Step, route: tuple[str, str], said: str, size: int, *kinds: type[Message]
    ) -> None:
        boxes = {"match_bundle" if Bundle in kinds else "match_boxes": size}
        who = {route[1]: said, "network": NETWORK}
        plan.add(name, part, step, route, kinds, sealed, times, dims=boxes, said=who)

    kinds = (Kind.POINTS, Kind.ANSWER, Kind.TAGS, Kind.TOLD, Kind.SHARE)
    points, answer, tags, told, half = (box_bytes(one, rows, width, clients) for one in kinds)
    learns = {_AGGREGATOR: BOXED, _SERVER: POINTS, "other clients": "nothing", "network": NETWORK}
    plan.add(
        name, part, Step.UP, up, (kind,), part, times, body=points, dims={WIDTH: width},
        said=learns, counted=wanted(plan.policy, width, clients),
    )  # fmt: skip
    add(Step.POINTS, to_server, POINTS, clients * points, Bundle)
    add(Step.ANSWERS, from_server, BOXED, clients * answer, Bundle)
    add(Step.HALFWAY, down, HALFWAY, answer, Box)
    add(Step.ONWARD, up, BOXED, points, Box)
    add(Step.SECOND_POINTS, to_server, SECOND_POINTS, clients * points, Bundle)
    add(Step.SECOND_ANSWERS, from_server, BOXED, clients * answer, Bundle)
    add(Step.TAGGED, down, "its own tags", answer, Box)
    add(Step.TAGS, up, BOXED, tags, Box)
    add(Step.COMPARE, (_AGGREGATOR, _MATCHER), MATCHER, clients * tags, Bundle)
    add(Step.COMPARED, (_MATCHER, _AGGREGATOR), BOXED, clients * told, Bundle, Canary)
    add(Step.TOLD, down, TOLD, told, Box)
    add(Step.SPLIT, up, BOXED, clients * half, Box)
    add(Step.MATES, down, "halves of secrets that others drew for it", clients * half, Box)
    said, dims = {_AGGREGATOR: PARTS, "network": NETWORK}, slot_dims(plan, rows)
    plan.add(name, part, Step.PART, up, (RowParts,), sealed, times, dims=dims, said=said)


PLAN = RowSumPlanning(Disclosure.ROW_SUM)
