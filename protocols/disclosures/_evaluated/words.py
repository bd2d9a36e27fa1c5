"""What plans say of results that are computed on ciphertexts (O3, O4, O10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from protocols.disclosures._base.words import Chain, Planned, Words
from protocols.disclosures._evaluated.guards import evaluated
from protocols.plan.plan import Item
from protocols.plan.steps import Step

CRAFTED = (
    "a client that sends a crafted ciphertext and works with the aggregator or a witness can bring "
    "the epoch's key out through what is opened, and so every message compared or weighed in it"
)
UNWITNESSED = (
    "nobody witnesses what is compared or weighed, as the policy asks (witnesses: 0), so an active "
    "aggregator can have a single upload opened"
)


class EvaluatedWords(Words):
    """What compared and weighed messages have in common.

    Attributes:
        told: per role, what it learns of an upload and of what is computed from it.
        said: the warning of what is opened.
    """

    told: ClassVar[Mapping[str, str]]
    said: ClassVar[str]

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what an upload tells it; without witnesses, of a semi-honest one."""
        found = {**self.told, "other clients": "nothing", "network": network}
        guard = evaluated(chain)
        if guard is not None and not guard.witnesses:
            # Nobody keeps the aggregator to what it should have opened.
            del found["witness"]
            found["aggregator"] += ", if it is semi-honest"
        return found

    def opened(self, plan: Planned) -> list[Item]:
        """Return the items with which results of this disclosure are opened."""
        place = (self.disclosure, Step.OPEN)
        return [item for item in plan.items if (item.part, item.step) == place]

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of what is opened, of crafted ciphertexts, and where nobody witnesses."""
        found = []
        witnessed = {(i.exchange, i.part) for i in plan.items if i.step is Step.WITNESS}
        for item in self.opened(plan):
            unseen = (item.exchange, item.part) not in witnessed
            found += [*([UNWITNESSED] if unseen else []), self.said, CRAFTED]
        return list(dict.fromkeys(found))
