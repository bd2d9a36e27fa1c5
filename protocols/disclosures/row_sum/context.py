"""What plan, policy and roster must agree on before rows are found by tags (O24)."""

from __future__ import annotations

from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.run import row_item, rows_guard
from protocols.errors import NotInPlan
from protocols.privacy.row_noise import check_row_noise
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext

_SERVERS = 2


def _check(context: RunContext) -> None:
    """Raise NotInPlan unless rows are added up once, by two tag servers' tags."""
    said = [
        item
        for item in context.plan.items
        if item.disclosure is Disclosure.ROW_SUM and item.sender == str(Role.CLIENT)
    ]
    check_row_noise(context.plan, context.policy)
    if rows_guard(context.policy) is None or not said:
        return
    if said != [row_item(context.plan)]:
        raise NotInPlan(
            "The plan has other than one message of rows found by tags.",
            why="another one would leave as it is, and the policy asks for sums under masks",
            fix="make a new plan with this policy",
        )
    servers = len(context.roster.names(Role.TAG_SERVER))
    if servers != _SERVERS:
        raise NotInPlan(
            f"The roster holds {servers} tag servers; rows need two.",
            why="the key of tags is cut in two, so that nobody makes tags alone (O24)",
            fix="name two tag servers of two organisations",
        )
    for item in context.plan.items:
        if item.part is Disclosure.ROW_SUM and item.times > 1:
            raise NotInPlan(
                f"The plan has rows added up {item.times} times ({item.id}).",
                why="a node enters so many rows in a run; a second time it would enter others",
                fix="make a new plan with this policy",
            )


CONTEXT = _check
