"""Who takes part in a run: every party's name and role, as they follow from plan and policy."""

from __future__ import annotations

from protocols.disclosures._evaluated.ciphers import witness_count
from protocols.plan.plan import Plan
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roster import (
    AGGREGATOR_NAME,
    AUTHORITY_NAME,
    MATCHER_NAME,
    RELAY_NAME,
    TAG_SERVER_NAMES,
    Role,
    witness_name,
)

__all__ = ["roles_of"]


def roles_of(plan: Plan, policy: PrivacyPolicy) -> dict[str, Role]:
    """Return the role of every party of a run, by name."""
    witnesses = range(1, 1 + witness_count(plan.items, policy))
    named = {
        Role.KEY_AUTHORITY: (AUTHORITY_NAME,),
        Role.WITNESS: tuple(witness_name(number) for number in witnesses),
        Role.RELAY: (RELAY_NAME,),
        Role.TAG_SERVER: TAG_SERVER_NAMES,
        Role.MATCHER: (MATCHER_NAME,),
    }
    asked = {item.recipient for item in plan.items}
    found = {AGGREGATOR_NAME: Role.AGGREGATOR, **dict.fromkeys(plan.clients, Role.CLIENT)}
    for role, names in named.items():
        if str(role) in asked:
            found |= dict.fromkeys(names, role)
    return found
