"""What every party of a run holds, and where in the run a message belongs."""

from __future__ import annotations

from dataclasses import dataclass, field

from crypto.bfv import Bfv, PublicKey
from protocols.envelope import NONE
from protocols.errors import NotInPlan
from protocols.guards import UnsafeClear, describe
from protocols.plan import Item, Plan
from protocols.policy import PrivacyPolicy
from protocols.roster import Identity, Roster, cohort_digest


@dataclass(frozen=True)
class Where:
    """Where in the run a message belongs.

    Attributes:
        round: 0 before the first and after the last round.
        exchange: number of the Ask; never repeats in a run.
        members: the exact cohort; empty for messages outside any cohort.
        given: digest of what the cohort was given.
        attempt: 1, or more after a repeated Ask.
    """

    round: int = 0
    exchange: int = 0
    members: tuple[str, ...] = ()
    given: str = NONE
    attempt: int = 1


@dataclass
class Papers:
    """What every party of a run holds: identity, roster, plan, policy, run name, encryption."""

    me: Identity
    roster: Roster
    plan: Plan
    policy: PrivacyPolicy
    run: str
    scheme: Bfv | None = None
    he_key: PublicKey | None = None
    transport: str = "memory"
    pairs: dict[str, bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Cache the digests that stand in every header, and hold plan, policy and roster together.

        Raises:
            NotInPlan: the plan was made for another policy or other clients, or states another
                protection than the policy asks for.
        """
        # Copies of our own: what the digests stand for cannot be changed from outside.
        self.plan, self.policy = self.plan.model_copy(deep=True), self.policy.checked()
        self.plan_digest, self.policy_digest = self.plan.digest, self.policy.digest
        self.schemas = {item.id: item.schema_digest for item in self.plan.items}
        if self.plan.policy_digest != self.policy_digest:
            raise NotInPlan(
                "The plan was made for another policy.", fix="make a new plan with this policy"
            )
        if set(self.plan.clients) != set(self.roster.clients):
            raise NotInPlan("The plan names other clients than the roster.")
        if self.plan.smallest_cohort != self.policy.smallest_cohort:
            raise NotInPlan("The plan states another smallest cohort than the policy.")
        for item in self.plan.items:
            chain = self.policy.chain(item.disclosure)
            if item.guards != tuple(describe(guard) for guard in chain):
                raise NotInPlan(f"The plan states another protection of {item.id} than the policy.")
            if item.unsafe != any(isinstance(guard, UnsafeClear) for guard in chain):
                raise NotInPlan(f"The plan does not say whether {item.id} is unsafe.")

    def dims(self, item: Item) -> dict[str, int]:
        """Return all named sizes that apply to an item."""
        return {**self.plan.dims, **item.dims}

    def cohort(self, where: Where) -> str:
        """Return the digest of the exact cohort, or NONE without one."""
        if not where.members:
            return NONE
        return cohort_digest(self.run, self.plan_digest, where.round, where.attempt, where.members)
