"""What plans say of rows that are weighed (O10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from protocols.disclosures._base.words import Planned
from protocols.disclosures._evaluated.words import CRAFTED, UNWITNESSED, EvaluatedWords
from protocols.disclosures.names import Disclosure
from protocols.wire.roles import Role

ROWS = (
    "every client learns weighted combinations of others' messages, each resting on at least the "
    "policy's minimum_cohort of others in effect, or on its own message alone; combinations of "
    "many rounds together may tell more"
)
EVEN = (
    "there are no more other clients than a row must rest on, so every row weighs all others "
    "alike, whatever the algorithm asks for"
)
MANY = "from round "  # begins the warning on combinations of many rounds


class WeightedSumWords(EvaluatedWords):
    """Combinations are opened blind, each by its receiver."""

    limits = (ROWS, CRAFTED, UNWITNESSED, MANY)
    computed = "what is weighed"
    said = ROWS
    told: ClassVar[Mapping[str, str]] = {
        "aggregator": "nothing: it chooses the weights and cannot open a row",
        "key_authority": "uniform noise, how alike two receivers' weights are (all weights where "
        "they are computed from cosines, which it opened), and who took part when",
        "witness": "the weights, that every row rests on enough others, who took part when, no "
        "value of a message",
        "addressee": "its own weighted combination",
    }

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        return "its own weighted combination"

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of what is opened, of many rounds, and of rows that can only be even."""
        found = [*super().warnings(plan), *_many(plan)]
        return [*found, EVEN] if plan.fewest and ROWS in found else found


def _many(plan: Planned) -> list[str]:
    """Warn where rounds suffice to hand a client as many combinations as there are others."""
    handed, others = (Disclosure.WEIGHTED_SUM, str(Role.CLIENT)), plan.others
    times = [i.times for i in plan.items if (i.disclosure, i.recipient) == handed and not i.unsafe]
    if not others or max(times, default=0) < others:
        return []
    return [
        f"{MANY}{others} on a client may hold as many independent combinations as there are "
        f"others ({others}): told the weights by the aggregator or a witness, it could solve for "
        "each, did models not change, and for single ones earlier (O10)"
    ]


WORDS = WeightedSumWords(Disclosure.WEIGHTED_SUM)
