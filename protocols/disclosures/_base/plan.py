"""What a disclosure adds to a plan: its items, its dimensions, and how often it may happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from protocols.disclosures.names import Disclosure
from protocols.disclosures.registry import facet
from protocols.disclosures.released.messages import SharedTotal
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.learns import RECOMPUTED
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.policy.guard import Guard
from protocols.policy.policy import PrivacyPolicy


class Planning:
    """The planning of one disclosure; by default a message travels as it is.

    Args:
        disclosure: that is planned.
    """

    def __init__(self, disclosure: Disclosure) -> None:
        self.disclosure = disclosure

    def dims(
        self, form: Form[Any], chain: Sequence[Guard], dims: Mapping[str, int], records: int
    ) -> dict[str, int]:
        """Return the dimensions that the plan sizes for messages of this disclosure.

        Args:
            form: the admitted form.
            chain: the policy's; empty where it names none.
            dims: of the algorithm.
            records: public bound of one client's training records.
        """
        return {}

    def most(self, plan: PlanBuilder, exchange: Exchange) -> int | None:
        """Return how often at most an exchange that brings it back may happen; None: as asked."""
        return None

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add what comes back of this disclosure, and what opening it takes."""
        plan.add(name, self.disclosure, Step.UP, UP, kinds, self.disclosure, times)

    def handed_down(self, kind: type[Message], chain: Sequence[Guard]) -> type[Message]:
        """Return what stands on the wire for a message that an Ask hands out."""
        return kind

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Add what is opened for an Ask that hands it out; return the sizes that the Ask needs."""
        return {}

    def handed_said(self, plan: PlanBuilder) -> dict[str, str] | None:
        """Return who learns what of an Ask that hands it out; None: what the words say."""
        return None

    def epoch(self, plan: PlanBuilder, planned: Sequence[Item]) -> None:
        """Add what is agreed on in every epoch, once all exchanges are planned."""


def planning_of(disclosure: Disclosure) -> Planning:
    """Return the planning of a disclosure."""
    return cast(Planning, facet(disclosure, "plan") or Planning(disclosure))


def wire_kinds(
    kinds: Sequence[type[Message]], policy: PrivacyPolicy, model: str = ""
) -> tuple[type[Message], ...]:
    """Return what stands on the wire for the messages that an Ask hands out.

    Args:
        kinds: as the algorithm says them; where a model is recomputed, it is the first.
        policy: whose guards apply.
        model: as the plan's item says.
    """
    found = tuple(
        planning_of(kind.disclosure).handed_down(kind, policy.rules.get(kind.disclosure, ()))
        for kind in kinds
    )
    return (SharedTotal, *found[1:]) if model == RECOMPUTED else found
