"""In words: what mixtures tell, and what a relay changes of it (O22, O23)."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.disclosures._base.words import Chain, Planned, Words, listed, under
from protocols.disclosures._relayed.words import BATCH, pool_of
from protocols.disclosures.mixed.guards import Mix
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Item
from protocols.policy.guard import find, guard_of

MIXTURES = (
    "{}: the aggregator reads mixtures of single clients, {}. Who stands in which is drawn once in "
    "a run and never leaves; whoever learns it, or sees the same groups under many models or in "
    "many runs, may solve for single records (attack A06). {}"
)
_LABELS = (
    "The shares of labels tell how many centres of each class a mixture has (A04), and all "
    "together how many training nodes a client has."
)
_NO_LABELS = "No labels are said."
RELAYED = (
    "{}: a relay takes the senders off, and content still hints at them: a client's mixtures are "
    "alike from round to round, and when it vanishes they are what is missing. Nothing is credited "
    "for the order. Aggregator and relay together know all senders, as without a relay"
)


def of_mix(mix: Mix) -> str:
    """Return of how many records each mixture is."""
    return f"each over at least {mix.floor} distinct ones at every position"


BLURRED = (
    "noise is added to {} and not accounted, since a record stands in many places: epsilon = "
    "infinity for the run; covered: nothing; not covered: all messages"
)


class MixedWords(Words):
    """Mixtures of one client's records."""

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what an upload of mixtures tells it."""
        mix = guard_of(chain, Mix)
        if mix is None:
            return super().learns(chain, network)
        noised = "noised " if find(chain, "blur") else ""
        told = f"{noised}mixtures of one client's records, {of_mix(mix)}, and their labels"
        found = {"aggregator": told, "other clients": "nothing", "network": network}
        if find(chain, "relay"):
            content = pool_of(Disclosure.MIXED).partition("; ")[2]
            found["aggregator"] += f"; no sender ({content}), unless the relay tells"
            found["relay"] = BATCH
        return found

    def warnings(self, plan: Planned) -> list[str]:
        """Say what mixtures tell, where they are protected at all."""
        chain = plan.policy.rules.get(Disclosure.MIXED, ())
        mix, found = guard_of(chain, Mix), []
        if mix is None:
            return []
        for item in plan.items:
            if item.disclosure is Disclosure.MIXED:
                labelled = any(len(message.fields) > 1 for message in item.messages)
                said = _LABELS if labelled else _NO_LABELS
                found.append(MIXTURES.format(item.id, of_mix(mix), said))
                found += [RELAYED.format(item.id)] if find(chain, "relay") else []
        return found

    def unaccounted(self, items: Sequence[Item]) -> str:
        """Name the items whose mixtures are noised."""
        return listed(BLURRED, [item for item in items if under(item, "blur")])


WORDS = MixedWords(Disclosure.MIXED)
