"""What plan and policy must agree on before neighbours read sums (O5, ADR 0053)."""

from __future__ import annotations

from protocols.disclosures.names import Disclosure
from protocols.errors import NotInPlan, PolicyError
from protocols.wire.run_context import RunContext


def _check(context: RunContext) -> None:
    """Raise NotInPlan unless the plan's topology is what its edges and the policy give."""
    plan = context.plan
    wanted = any(item.disclosure is Disclosure.NEIGHBOUR_SUM for item in plan.items)
    if (plan.topology is not None) != wanted:
        raise NotInPlan("The plan has a topology without sums over neighbours, or these without.")
    if plan.topology is None:
        return
    try:
        again = plan.topology.again(context.policy)
    except (PolicyError, ValueError) as error:
        raise NotInPlan(
            f"The plan's topology does not do: {getattr(error, 'what', error)}"
        ) from error
    if set(plan.topology.shares) != set(plan.clients) or again != plan.topology:
        raise NotInPlan("The plan states another topology than follows from its clients.")


CONTEXT = _check
