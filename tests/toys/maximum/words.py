"""What plans say of a maximum."""

from __future__ import annotations

from protocols.disclosures._base.words import Chain, Planned, Words
from protocols.disclosures.names import Disclosure
from protocols.plan.steps import Step
from protocols.policy.guard import find

LARGEST = (
    "the largest integer of a cohort is one client's own; who works with all others knows whose "
    "it is, and two cohorts that differ by one client may tell that client's"
)


class MaximumWords(Words):
    """Only the largest integer is opened."""

    limits = (LARGEST,)
    computed = "the shares of a maximum"

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what one client's integer tells it."""
        if not find(chain, "levels"):
            return super().learns(chain, network)
        return {
            "aggregator": f"{self.disclosure.meaning} (and who took part)",
            "key_authority": "uniform noise, and who took part when",
            "other clients": "nothing",
            "network": network,
        }

    def together(self, chain: Chain) -> dict[str, str]:
        """Return what those see together who hold both shares."""
        if not find(chain, "levels"):
            return {}
        return {"aggregator and key authority, of a maximum": "EVERY single integer"}

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of what the largest integer tells."""
        opened = any((i.part, i.step) == (self.disclosure, Step.OPEN) for i in plan.items)
        return [LARGEST] if opened else []


WORDS = MaximumWords(Disclosure("MAXIMUM"))
