"""In words: what mixtures tell, and what a relay changes of it (O22, O23)."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.disclosures.mixed.guards import Mix
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Item
from protocols.policy.guard import Guard, find
from protocols.policy.policy import PrivacyPolicy

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
POOL = "the cohort's mixtures in one order that tells no sender; content still hints at senders"
BATCH = "who took part when; sealed boxes, as many and as large for every client, and no content"


def of_mix(mix: Mix) -> str:
    """Return of how many records each mixture is."""
    return f"each over at least {mix.floor} distinct ones at every position"


def mixed_learns(chain: tuple[Guard, ...], mix: Mix, network: str) -> dict[str, str]:
    """Return, per role, what an upload of mixtures tells it."""
    noised = "noised " if find(chain, "blur") else ""
    told = f"{noised}mixtures of one client's records, {of_mix(mix)}, and their labels"
    found = {"aggregator": told, "other clients": "nothing", "network": network}
    if find(chain, "relay"):
        found["aggregator"] += f"; no sender ({POOL.partition('; ')[2]}), unless the relay tells"
        found["relay"] = BATCH
    return found


def mixed_warnings(items: Sequence[Item], policy: PrivacyPolicy) -> list[str]:
    """Say what mixtures tell, where they are protected at all."""
    chain = policy.rules.get(Disclosure.MIXED, ())
    mix, found = find(chain, "mix"), []
    if not isinstance(mix, Mix):
        return []
    for item in items:
        if item.disclosure is Disclosure.MIXED:
            labelled = any(len(message.fields) > 1 for message in item.messages)
            said = _LABELS if labelled else _NO_LABELS
            found.append(MIXTURES.format(item.id, of_mix(mix), said))
            found += [RELAYED.format(item.id)] if find(chain, "relay") else []
    return found
