"""What plans say of rows that one client shows by itself, and of noise on single numbers (O21)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from protocols.disclosures._base.words import Chain, Planned, Words, listed, under
from protocols.disclosures._relayed.words import BATCH
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.decoys import local_epsilon
from protocols.disclosures.noised.guards import Decoys
from protocols.plan.plan import Item
from protocols.policy.guard import find, guard_of

__all__ = ["WORDS", "local_noise"]

LOCAL = (
    "noise is added to every number of {} by itself: epsilon = infinity for the run, as which rows "
    "are sent depends on the data; covered: single numbers alone, as said below; not covered: all "
    "messages as a whole"
)


RELAYED = (
    "{}: a relay takes the senders off, and is trusted for that alone. Aggregator and relay "
    "together know all senders, as without a relay; what each client's own noise gives holds all "
    "the same. A relay can replace messages by its own, one for one and unseen"
)


class NoisedWords(Words):
    """One client's message under its own noise; or its rows, among decoys."""

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what a message tells it."""
        known = super().learns(chain, network)
        if find(chain, "own_noise"):
            known["aggregator"] = "each message under its client's own noise, and whose it is"
            if find(chain, "relay"):
                known["aggregator"] += " only if the relay tells"
                known["relay"] = BATCH
        return known

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of what rows among decoys tell, which one client shows by itself."""
        chain = plan.policy.rules.get(Disclosure.NOISED, ())
        if find(chain, "relay"):
            noised = [item for item in plan.items if item.disclosure is Disclosure.NOISED]
            return [RELAYED.format(item.id) for item in noised]
        decoys = guard_of(chain, Decoys)
        if decoys is None:
            return []
        again = (
            "decoys are drawn anew in every round, so rows that stay are the client's own (A01)"
            if decoys.draw == "fresh"
            else "decoys are drawn once in a run, so rows that stay over runs are the client's own"
        )
        return [
            f"{item.id}: {again}; which rows are sent, and that others are not, stands outside "
            "every epsilon; of a client that holds more than half as many, half of the rows are "
            "its own"
            for item in plan.items
            if item.disclosure is Disclosure.NOISED
        ]

    def unaccounted(self, items: Sequence[Item]) -> str:
        """Name the items whose numbers are noised one by one."""
        return listed(LOCAL, [item for item in items if under(item, "laplace")])

    def spends(self, item: Item, chain: Chain) -> list[str]:
        """Return what the noise on one number comes to."""
        beside = "which rows are sent, and rows drawn from the client's own"
        return local_noise(item, chain, beside)


def local_noise(item: Item, chain: Chain, beside: str) -> list[str]:
    """Return what Laplace noise on single clients' numbers comes to.

    Args:
        item: of the plan.
        chain: that protects it.
        beside: what the noise leaves open.
    """
    if find(chain, "laplace") is None:
        return []
    one = local_epsilon(tuple(chain))
    if one is None:
        return [f"{item.id}: no epsilon: its noise's scale depends on the data (O21)"]
    fields = [f for m in item.messages for f in m.fields if f.dtype in ("f4", "f8")]
    numbers = sum(math.prod(field.shape) for field in fields)
    return [
        f"{item.id}: epsilon = {one:g} per coordinate, per round, and {one * numbers:g} for a "
        f"whole message of {numbers} coordinates, {one * numbers * item.times:g} for the run "
        "(unit: coordinate, message; adjacency: replace-one; model: local; scope: as said; "
        "delta < 2^-200, of the sampler; assumptions: none on sampling); not covered: "
        f"{beside}"
    ]


WORDS = NoisedWords(Disclosure.NOISED)
