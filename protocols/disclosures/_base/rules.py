"""Which chains protect a disclosure, and which forms of algorithms they admit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, cast

from protocols.disclosures.names import Disclosure
from protocols.disclosures.registry import facet
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.policy.guard import Guard

Chain = Sequence[Guard]


class Limits(Protocol):
    """What rules read of a policy beside its chains; see `PrivacyPolicy`."""

    @property
    def rules(self) -> Mapping[Disclosure, tuple[Guard, ...]]:
        """The chain of each disclosure that the policy names."""

    @property
    def colluders(self) -> int:
        """Clients that are assumed to collude."""

    @property
    def holders(self) -> int:
        """Clients that must hold a row, besides colluders (O12)."""

    @property
    def others(self) -> int:
        """Clients beside the receiver that a result must rest on (O10)."""

    @property
    def cohort_changes(self) -> str:
        """How a run's sums may differ in who is in them (O5)."""

    @property
    def smallest_cohort(self) -> int:
        """Clients that must take part."""


class Rules:
    """The rules of one disclosure; these defaults refuse all but one guard.

    Attributes:
        protecting: guards of which one must stand in a chain, or the receiver learns more.
        applied: all guards that the gateway applies to such messages.
        order: the orders that are possible, in words.
        from_records: a message is made of records themselves, which no noised gradient hides.
    """

    protecting: ClassVar[frozenset[str]] = frozenset({"unsafe_clear"})
    applied: ClassVar[frozenset[str]] = frozenset({"unsafe_clear"})
    order: ClassVar[str] = "a single guard"
    from_records: ClassVar[bool] = False

    def check(self, chain: Chain) -> None:
        """Raise ValueError unless a chain in a possible order protects messages as a whole."""
        if len(chain) != 1:
            possible = ", ".join(sorted(self.protecting))
            raise ValueError(f"give exactly one guard, one of {possible}")

    def accounted(self, chain: Chain) -> bool:
        """Tell whether what a chain lets out can be accounted beside a budget (O16)."""
        return True

    def check_policy(self, chain: Chain, policy: Limits) -> None:
        """Raise ValueError where a chain asks for less than its policy does."""

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Say why a message of a form cannot be protected by the policy's chain; None if it can."""
        return None

    def alone(self, chain: Chain) -> bool:
        """Tell whether an exchange may hold one such message at most."""
        return False

    def among(self, exchanges: Sequence[Exchange], chain: Chain) -> str | None:
        """Say what of a form's exchanges cannot be done with such messages; None if all can."""
        return None


def rules_of(disclosure: Disclosure) -> Rules:
    """Return the rules of a disclosure."""
    return cast(Rules, facet(disclosure, "rules") or Rules())
