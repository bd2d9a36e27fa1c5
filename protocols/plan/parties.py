"""Who takes part in a run: every party's name and role, as they follow from plan and policy."""

from __future__ import annotations

from protocols.plan.plan import Plan
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roles import Role, names
from protocols.wire.roster import AGGREGATOR_NAME

__all__ = ["roles_of"]


def roles_of(plan: Plan, policy: PrivacyPolicy) -> dict[str, Role]:
    """Return the role of every party of a run, by name."""
    found = {AGGREGATOR_NAME: Role.AGGREGATOR, **dict.fromkeys(plan.clients, Role.CLIENT)}
    for role in Role:
        if role not in (Role.AGGREGATOR, Role.CLIENT):
            found |= dict.fromkeys(names(role, plan.items, policy), role)
    return found
