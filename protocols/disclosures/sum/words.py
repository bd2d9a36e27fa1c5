"""What plans say of sums: what the total tells, and of whom it may (O1, O4, O12)."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.disclosures._base.words import NETWORK, Chain, Planned, Words
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.addressed.turns import turns
from protocols.disclosures.sum.guards import encryption
from protocols.plan.plan import Item
from protocols.plan.steps import Service, Step
from protocols.policy.guard import find
from protocols.policy.policy import FEWEST_OTHERS

ACTIVE_AGGREGATOR = "an active aggregator can have a single upload opened"
KEY_THEFT = (
    "one crafted ciphertext, opened, gives an active aggregator the run's secret key and so every "
    "upload of the run; a dishonest client can bring the key out through the total"
)
HELD = (
    "{}: a row of the total rests on at least {} clients if the aggregator is semi-honest: who "
    "holds an item is counted with the first sum, which it alone reads, so no client can check "
    "what it is told; others' counts are their word; who vanishes later is missing. The count is "
    "disclosed: a one says that some client holds the item, and counts of two runs that differ by "
    "one client name its items (O12)"
)
CHANGES = {
    "any": "totals of one run may differ by one client (cohort_changes: any): an aggregator that "
    "leaves a client out of a round, or says that it vanished, and hands out nearly the same model "
    "again reads that client's own update from the difference, exactly; cohort_changes: fixed "
    "refuses such rounds",
    "floor": "no two totals of one run differ by fewer than {} clients, and no more of them that "
    "one client, or a key authority, is shown can be combined into one of fewer (cohort_changes: "
    "floor); a round from which fewer vanish is lost, and so are those in which they are away",
    "fixed": "no two totals of one run differ by a few clients: they are of the very same ones, or "
    "have none in common, as every client and a key authority see to (cohort_changes: fixed); each "
    "round in which a client is away is lost",
}
"""What a plan says of a policy's `cohort_changes`."""
WHOLE = (
    "no two totals of one run differ by a few clients: as many take part as the smallest cohort "
    "holds, so each total is of all of them, and each round in which a client is away is lost"
)
"""The same where nobody can be left out, whatever `cohort_changes` is."""
POOLED = (
    "a total may be of three clients beside the assumed colluders, and a weighed row too "
    "(minimum_cohort: 2): less one's own part it is of two others, and any two clients that pool "
    "what they have read the third one's update from it in every round, {}"
)
"""What a policy costs that asks for two others."""
SINGLE = (
    "an item's row with a single contributor is that user's own: in matrix factorisation it gives "
    "the user's vector and the ratings of such items, and the vector tells which rows of several "
    "users it is in"
)


READERS = "all clients read it too, as they compute the model from the total"


ONE_READER = (
    "a total that one client reads tells it what the sum of all others says; with the clients that "
    "collude with it, what the sum of the rest says (O10, O11)"
)


def read_by_one(clients: Sequence[str], *, encrypted: bool) -> dict[str, str]:
    """Return who learns what of a summand whose total one of these clients reads."""
    return {
        "aggregator": "uniform noise, whose turn it is to read, and who took part",
        **({"key_authority": "uniform noise, and who took part when"} if encrypted else {}),
        "addressee": f"only the total of all others, one client {turns(clients)}",
        "other clients": "nothing",
        "network": NETWORK,
    }


def handed_to_one(clients: Sequence[str]) -> dict[str, str]:
    """Return who learns what where totals are handed to the clients that read them."""
    return {"client": "the total of all others, where it was its turn to read", "network": NETWORK}


class SumWords(Words):
    """Only the cohort's total is opened."""

    limits = ("no two totals of one run", "totals of one run may", "a total may be of three")

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what one client's summand tells it."""
        noised = "noised " if find(chain, "noise") or find(chain, "own_noise") else ""
        honest = "" if find(chain, "mask") else ", if it is semi-honest"
        known = {
            "aggregator": f"only the cohort's {noised}total (and who took part){honest}",
            "key_authority": "uniform noise, and who took part when",
            "other clients": "nothing",
            "network": network,
        }
        if encryption(chain) is None:
            del known["key_authority"]  # there is none
        return known

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of encryption without masks, and of entries with a single contributor (O12)."""
        opened = any((i.part, i.step) == (Disclosure.SUM, Step.OPEN) for i in plan.items)
        found = [ACTIVE_AGGREGATOR, KEY_THEFT] if opened and not masked(plan.items) else []
        found += _told_apart(plan)
        rows = plan.rows or {}
        found += [ONE_READER] if any(item.reader for item in plan.items) else []
        for item in filter(_vector_sum, plan.items):
            holders = {rows[message.name] for message in item.messages if message.name in rows}
            least = min(holders, default=1) - bool(item.reader)
            if least > 1:
                found.append(HELD.format(item.id, least))
                continue
            told = _single(item) + [SINGLE] * bool(holders) + [READERS] * (item.checked > 0)
            found.append(
                f"{item.id}: an entry of the total may have a single contributor "
                f"({'; '.join(told)}); the plan cannot exclude it (O12)"
            )
        return found


def _told_apart(plan: Planned) -> list[str]:
    """Say what totals tell of one client: once they are subtracted, and where they are of three."""
    sums = [i for i in plan.items if (i.part, i.step) == (Disclosure.SUM, Step.UP)]
    hidden, found = [item for item in sums if not item.unsafe], list[str]()
    bare = any(item.noise is None for item in hidden)
    if plan.policy.minimum_cohort == FEWEST_OTHERS and hidden:
        found.append(POOLED.format("exactly" if bare else "under the noise of the total"))
    rule = plan.policy.cohort_changes
    if rule == "any":
        return [*found, WHOLE if plan.fewest else CHANGES[rule]] if bare else found
    text = CHANGES[rule].format(plan.apart or plan.policy.smallest_cohort)
    return [*found, text] if sums else found


def masked(items: Sequence[Item]) -> bool:
    """Tell whether sums carry masks; of a plan without sums, whether what neighbours send does.

    Pairs of clients agree on secrets for either.
    """
    places = {(item.part, item.step) for item in items}
    if (Disclosure.SUM, Step.UP) in places:
        return (Disclosure.SUM, Step.SURVIVORS) in places
    return (Service.PAIRS, Step.CALL) in places


def _vector_sum(item: Item) -> bool:
    fields = (field for message in item.messages for field in message.fields)
    plain = item.disclosure is Disclosure.SUM and item.noise is None
    return item.step is Step.UP and plain and any(f.shape for f in fields)


def _single(item: Item) -> list[str]:
    """Say, for each kind of vector in a sum, what an entry with one contributor tells."""
    fields = [field for message in item.messages for field in message.fields if field.shape]
    found = []
    if any(field.dtype != "u8" for field in fields):
        found.append("a weight that only one client moved: of a feature or an item only it has")
    counts = [field.name for field in fields if field.dtype == "u8"]
    if counts:
        found.append(f"{', '.join(counts)}: a count of one tells where that one record falls")
    return found


WORDS = SumWords(Disclosure.SUM)
