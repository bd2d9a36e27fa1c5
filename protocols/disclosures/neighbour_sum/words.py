"""What plans say of sums over neighbours."""

from __future__ import annotations

from typing import ClassVar

from protocols.disclosures._base.words import Chain, Planned, Words
from protocols.disclosures.names import Disclosure
from protocols.policy.guard import find

COORDINATOR = (
    "there is no aggregator of models: the coordinator starts rounds and hands on boxes that only "
    "the addressed clients open; it sees who takes part, when, and sizes, and can say that a "
    "client is away"
)
SUMS = "every client reads, in each round that nobody of it misses, a sum over its neighbours; "
ROUNDS = (
    "on how many others sums rest is counted within a round: over rounds a client also knows from "
    "what its neighbours went on. Who is kept from mixing, as a neighbour or the coordinator can, "
    "trains alone, and its model is read in their sums up to what the others learnt in one round; "
    "where clients mix and hardly train, sums of many rounds tell single models"
)
THIN = "UNSAFE: topology_floor: unsafe lets a sum over neighbours rest on too few: "
SINGLE = "EVERYTHING: each neighbour's message in clear"


class NeighbourWords(Words):
    """Each client reads one sum, and the coordinator none."""

    limits: ClassVar[tuple[str, ...]] = (COORDINATOR, SUMS, ROUNDS, THIN)

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what a client's vector tells it."""
        return {
            "aggregator": "nothing: as coordinator it hands on boxes that it cannot open",
            "addressee": "the weighted sum over its own neighbours, if none is missing",
            "network": network,
        }

    def together(self, chain: Chain) -> dict[str, str]:
        """Return what receivers see together."""
        return {"receivers that work together": "combinations of their sums; see the topology"}

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        return "the weighted sum over its own neighbours, if none is missing"

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of the coordinator, of what is read, and of sums over too few; in clear of less."""
        if plan.topology is None:
            return []
        if find(plan.policy.rules.get(self.disclosure, ()), "unsafe_clear"):
            return []  # that everything leaves in clear is said already, and nothing else is true
        found = [COORDINATOR, SUMS + plan.topology.words, ROUNDS]
        thin = plan.topology.floor == "unsafe"
        return [THIN + plan.topology.thinnest, *found] if thin else found


WORDS = NeighbourWords(Disclosure.NEIGHBOUR_SUM)
