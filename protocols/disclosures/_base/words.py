"""What plans say of a disclosure in words: who learns what, and what a reader must know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from protocols.disclosures.names import Disclosure
from protocols.disclosures.registry import facet
from protocols.plan.cohorts import SplitPlan, TopologyPlan
from protocols.plan.plan import Item
from protocols.policy.guard import Guard
from protocols.policy.policy import PrivacyPolicy

NETWORK = "sender, recipient, time and size"
Chain = Sequence[Guard]


@dataclass(frozen=True)
class Planned:
    """What warnings rest on.

    Attributes:
        items: of the plan.
        policy: of the plan.
        others: clients beside a receiver; 0 if that is not known.
        fewest: no more clients take part than the policy's smallest cohort.
        rows: messages with rows, and how many clients hold each at least.
        reach: by how many times the largest change of one client a round may move a weight.
        splits: how clients fall into clusters; None: they never do.
        topology: whose sums clients read, where they read sums over their neighbours; else None.
        clusters: into how many at most.
        apart: of how many clients totals may be told apart under `cohort_changes: floor`; 0: the
            policy's smallest cohort.
    """

    items: Sequence[Item]
    policy: PrivacyPolicy
    others: int = 0
    fewest: bool = False
    rows: Mapping[str, int] | None = None
    reach: float = 0.0
    splits: SplitPlan | None = None
    topology: TopologyPlan | None = None
    clusters: int = 1
    apart: int = 0


class Words:
    """The words of one disclosure; these defaults say its meaning.

    Args:
        disclosure: whose words.

    Attributes:
        limits: beginnings of warnings that a report's limits say again.
        computed: what is computed on its ciphertexts, for the list of schemes; empty: nothing.
    """

    limits: ClassVar[tuple[str, ...]] = ()
    computed: ClassVar[str] = ""

    def __init__(self, disclosure: Disclosure) -> None:
        self.disclosure = disclosure

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what a protected message of a client tells it.

        Args:
            chain: the policy's guards for it.
            network: what whoever sees the network learns.
        """
        return {"aggregator": self.disclosure.meaning, "network": network}

    def together(self, chain: Chain) -> dict[str, str]:
        """Return, per collusion that only this disclosure knows, what those learn together."""
        return {}

    def handed(self, model: bool) -> str:
        """Return what a client learns of a message that it is given.

        Args:
            model: the message holds vectors or real numbers, and not mere flags and counters.
        """
        return self.disclosure.meaning

    def retold(self) -> str:
        """Return the same of a message that holds what single clients said in clear."""
        return self.handed(True)

    def in_clear(self, item: Item) -> str:
        """Return the warning of an item of an Unsafe chain; empty if another says it."""
        return f"UNSAFE: {item.id} leaves in clear"

    def warnings(self, plan: Planned) -> list[str]:
        """Return what a reader of the plan must know of this disclosure's items."""
        return []

    def unaccounted(self, items: Sequence[Item]) -> str:
        """Return in one sentence which noise no epsilon for the run is stated of; empty: none."""
        return ""

    def spends(self, item: Item, chain: Chain) -> list[str]:
        """Return what noise on one client's item comes to, where the run as a whole has none."""
        return []


def words_of(disclosure: Disclosure) -> Words:
    """Return the words of a disclosure."""
    return cast(Words, facet(disclosure, "words") or Words(disclosure))


def under(item: Item, guard: str) -> bool:
    """Tell whether a guard of this name protects an item."""
    return any(text.partition("(")[0] == guard for text in item.guards)


def listed(text: str, items: Sequence[Item]) -> str:
    """Return a sentence about items by id; empty if there are none."""
    return text.format(", ".join(item.id for item in items)) if items else ""
