"""What plan, policy and roster must agree on before anything is matched (O24)."""

from __future__ import annotations

from protocols.disclosures.match.run import match_item, match_run_of
from protocols.disclosures.names import Disclosure
from protocols.errors import NotInPlan
from protocols.plan.steps import Service
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext


def _check(context: RunContext) -> None:
    """Raise NotInPlan unless the roster holds who makes and who compares tags (O24)."""
    run = match_run_of(context)
    if run is None:
        return
    servers = len(context.roster.names(Role.TAG_SERVER))
    if servers != run.match.servers:
        raise NotInPlan(
            f"The roster holds {servers} tag servers; the policy asks for {run.match.servers}.",
            why="the key of tags is cut in two, so that nobody makes tags alone (O24)",
            fix="name two tag servers of two organisations; none in 'hmac' mode",
        )
    _check_epochs(context, run.match.epochs)


def _check_epochs(context: RunContext, epochs: int) -> None:
    """Raise NotInPlan unless one message is matched, and no oftener than the policy says (O24).

    A second one would have a count of its own.
    """
    plan = context.plan
    asked = [
        item
        for item in plan.items
        if item.disclosure is Disclosure.MATCH and item.sender == str(Role.CLIENT)
    ]
    if asked != [match_item(plan)]:
        raise NotInPlan(
            "The plan has other than one message of clients matched.",
            why="each would be matched as often as the policy says, by itself",
            fix="make a new plan with this policy",
        )
    name, whole = asked[0].exchange, (Service.ASK, Disclosure.MATCH)
    for item in plan.items:
        if item.exchange == name and item.part in whole and item.times > epochs:
            raise NotInPlan(
                f"The plan has items matched {item.times} times ({item.id}), the policy {epochs}.",
                why="every epoch is one more quota of guesses for whoever works with the matcher",
                fix="make a new plan with this policy",
            )


CONTEXT = _check
