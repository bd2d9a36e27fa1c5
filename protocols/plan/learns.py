"""In words: what each role learns from an item, and what a reader of the plan must know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from crypto.vectors import SKETCH_ABOVE
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures.match.words import match_warnings
from protocols.disclosures.mixed.guards import Mix
from protocols.disclosures.mixed.words import mixed_learns, mixed_warnings
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.words import local_noise, shown_rows, single_contributors
from protocols.disclosures.sum.guards import encryption
from protocols.plan.plan import DataPlan, Item
from protocols.plan.steps import Service, Step
from protocols.policy.guard import Guard, find
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.training import TrainingPlan
from protocols.wire.roster import Role

NETWORK = "sender, recipient, time and size"
_CLEAR = "EVERYTHING: the message in clear"


def learns(
    disclosure: Disclosure, chain: tuple[Guard, ...], up: bool, *, model: bool = True
) -> dict[str, str]:
    """Return, per role, what an item of this disclosure and protection tells it.

    Args:
        disclosure: of the item.
        chain: the policy's guards for it.
        up: True from client to aggregator, False from aggregator to client.
        model: a released message holds vectors or real numbers, and not mere flags and counters.
    """
    clear = find(chain, "unsafe_clear") is not None
    network = NETWORK if find(chain, "seal") else _CLEAR
    if not up:
        said = _DOWN.get(disclosure, disclosure.meaning)
        if disclosure is Disclosure.RELEASED and not model:
            said = _COUNTERS
        return {"client": said, "network": network}
    if clear:
        return {"aggregator": _CLEAR, "network": _CLEAR}
    if disclosure is Disclosure.SUM:
        known = {
            "aggregator": f"only the cohort's {_noised(chain)}total (and who took part)"
            + ("" if find(chain, "mask") else ", if it is semi-honest"),
            "key_authority": "uniform noise, and who took part when",
            "other clients": "nothing",
            "network": network,
        }
        if encryption(chain) is None:
            del known["key_authority"]  # there is none
        return known
    guard = evaluated(chain)
    if guard is not None:
        found = {**_EVALUATED[disclosure], "other clients": "nothing", "network": network}
        if not guard.witnesses:  # nobody keeps the aggregator to what it should have opened
            del found["witness"]
            found["aggregator"] += ", if it is semi-honest"
        return found
    mix = find(chain, "mix")
    if isinstance(mix, Mix):
        return mixed_learns(chain, mix, network)
    if disclosure is Disclosure.SEALED:
        return {"aggregator": "size only", "addressee": "its own row", "network": NETWORK}
    return {"aggregator": disclosure.meaning, "network": network}


def _noised(chain: tuple[Guard, ...]) -> str:
    return "noised " if find(chain, "noise") else ""


_EVALUATED = {
    Disclosure.SIMILARITY: {
        "aggregator": "only the matrix of pairwise cosines, rounded to 2^-14",
        "key_authority": "the same cosines to about 2^-20, as it rounds, and who took part when",
        "witness": "that the matrix was computed from these uploads, who took part when; no value, "
        "but roughly the cosines where the weights that it sees are computed from them",
    },
    Disclosure.WEIGHTED_SUM: {
        "aggregator": "nothing: it chooses the weights and cannot open a row",
        "key_authority": "uniform noise, how alike two receivers' weights are (all weights where "
        "they are computed from cosines, which it opened), and who took part when",
        "witness": "the weights, that every row rests on enough others, who took part when, no "
        "value of a message",
        "addressee": "its own weighted combination",
    },
}


_DOWN = {
    Disclosure.RELEASED: "what was computed from disclosed totals (the global model)",
    Disclosure.WEIGHTED_SUM: "its own weighted combination",
    Disclosure.MATCH: "what others hold under its own keys",
    Disclosure.SEALED: "what other clients addressed to it",
}

_COUNTERS = "flags, counters and public seeds; no model"


BUDGET_WITHOUT_NOISE = (
    "no noise is added: epsilon = infinity for the run; covered: nothing; not covered: all messages"
)

_BLURRED = (
    "noise is added to {} and not accounted, since a record stands in many places: epsilon = "
    "infinity for the run; covered: nothing; not covered: all messages"
)

_LISTED = (
    "noise is added to the vector of {} by itself: epsilon = infinity for the run, as which items "
    "match depends on the data; covered: vectors alone, as said below; not covered: all messages "
    "as a whole"
)

_LOCAL = (
    "noise is added to every number of {} by itself: epsilon = infinity for the run, as which rows "
    "are sent depends on the data; covered: single numbers alone, as said below; not covered: all "
    "messages as a whole"
)


def budget(
    items: Sequence[Item], policy: PrivacyPolicy, training: TrainingPlan | None = None
) -> str:
    """Return, in one sentence a unit, what the run spends and what that covers (O16)."""
    spent = "; ".join([_spent(items), *local_noise(items, policy)])
    if training is None:
        return spent
    return f"{_of_records(items, training)}. For a client as a whole: {spent}"


def _of_records(items: Sequence[Item], training: TrainingPlan) -> str:
    """Return what the run spends of one training record (O16, O21)."""
    covered = [
        item.id
        for item in items
        if _from_data(item) and not {m.name for m in item.messages} <= set(training.held_out)
    ]
    text = (
        f"For one training {training.unit}: epsilon <= {training.epsilon}, "
        f"delta = {training.delta} (unit: {training.unit}; adjacency: add or remove one training "
        f"{training.unit}; model: local, each client perturbs its own gradients; scope: run; "
        f"assumptions: Poisson batches at rate {training.rate} over the client's own training "
        f"{training.unit}s, no credit for the choice of clients); covered: "
        f"{', '.join(covered) or 'nothing'} and the models computed from it; not covered: "
        "refusals (one code), times, how long training takes"
    )
    if training.held_out:
        text += (
            f"; {', '.join(training.held_out)} counts validation and test {training.unit}s, which "
            "are other records: for those epsilon = infinity"
        )
    return text


def _spent(items: Sequence[Item]) -> str:
    """Return what the run spends of one client."""
    noised = [item for item in items if item.noise is not None]
    if not noised or noised[0].noise is None:
        for guard, matched, text in (
            ("blur(", False, _BLURRED),
            ("laplace(", False, _LOCAL),
            ("laplace(", True, _LISTED),
        ):
            noisy = [i.id for i in items if _under(i, guard) and matched is _under(i, "match(")]
            if noisy:
                return text.format(", ".join(noisy))
        return BUDGET_WITHOUT_NOISE
    noise, listed = noised[0].noise, ", ".join(item.id for item in noised)
    open_items = [item.id for item in items if item.noise is None and _from_data(item)]
    target = (
        f"epsilon <= {noise.epsilon}, delta = {noise.delta} (unit: client; adjacency: zero-out; "
        f"model: distributed sum, {noise.honest} honest shares; scope: run)"
    )
    if open_items:
        rest = ", ".join(open_items)
        return (
            f"epsilon = infinity for the run; covered: {listed} with {target}; not covered: {rest}"
        )
    return f"{target}; covered: {listed}; not covered: refusals (one code), times"


def _under(item: Item, guard: str) -> bool:
    return any(text.startswith(guard) for text in item.guards)


def _from_data(item: Item) -> bool:
    """Tell whether a client computes this item from its data."""
    return item.step is Step.UP


ACTIVE_AGGREGATOR = "an active aggregator can have a single upload opened"
KEY_THEFT = (
    "one crafted ciphertext, opened, gives an active aggregator the run's secret key and so every "
    "upload of the run; a dishonest client can bring the key out through the total"
)


COSINES = (
    "the key authority and the aggregator learn how alike every two clients' vectors are; where "
    "weights are computed from that, a witness learns it roughly, and the authority the weights; a "
    "client that chooses its vector and works with one of the two reads one coordinate of "
    "everybody's a round"
)
ROWS = (
    "every client learns weighted combinations of others' messages, each resting on at least the "
    "policy's minimum_cohort of others in effect, or on its own message alone; combinations of "
    "many rounds together may tell more"
)
EVEN = (
    "there are no more other clients than a row must rest on, so every row weighs all others "
    "alike, whatever the algorithm asks for"
)
CRAFTED = (
    "a client that sends a crafted ciphertext and works with the aggregator or a witness can bring "
    "the epoch's key out through what is opened, and so every message compared or weighed in it"
)
UNWITNESSED = (
    "nobody witnesses what is compared or weighed, as the policy asks (witnesses: 0), so an active "
    "aggregator can have a single upload opened"
)
SKETCHED = (
    "vectors of more than 100,000 values are compared by count-sketches of 65,536 places: cosines "
    "err by 0.004 to 0.006 (rms; 0.009 at most over 15 pairs of 1,000,000 values)"
)

MANY = "from round "  # begins the warning on combinations of many rounds
RESULTS = (COSINES, ROWS, CRAFTED, UNWITNESSED, SKETCHED)
"""What a plan warns of that compares or weighs; the report's limits say it again."""


def _results(items: Sequence[Item]) -> list[str]:
    """Say what cosines and rows tell, and that nobody witnesses them where that is so."""
    found = []
    witnessed = {(item.exchange, item.part) for item in items if item.step is Step.WITNESS}
    for item in items:
        if item.step is not Step.OPEN or item.part is Disclosure.SUM:
            continue
        if (item.exchange, item.part) not in witnessed:
            found.append(UNWITNESSED)
        found.append(COSINES if item.part is Disclosure.SIMILARITY else ROWS)
    found += [CRAFTED] if found else []
    return list(dict.fromkeys(found + [SKETCHED for item in items if _sketched(item)]))


def _many(items: Sequence[Item], others: int) -> list[str]:
    """Warn where rounds suffice to hand a client as many combinations as there are others."""
    handed = (Disclosure.WEIGHTED_SUM, str(Role.CLIENT))
    times = [
        item.times
        for item in items
        if (item.disclosure, item.recipient) == handed and not item.unsafe
    ]
    if not others or max(times, default=0) < others:
        return []
    return [
        f"{MANY}{others} on a client may hold as many independent combinations as there are "
        f"others ({others}): told the weights by the aggregator or a witness, it could solve for "
        "each, did models not change, and for single ones earlier (O10)"
    ]


def _sketched(item: Item) -> bool:
    """Tell whether the vectors of an item are sketched: its ciphertexts hold fewer values."""
    if item.disclosure is not Disclosure.SIMILARITY or item.unsafe or item.step is not Step.UP:
        return False
    (field,) = item.messages[0].fields
    return math.prod(field.shape) > SKETCH_ABOVE


def schemes(items: Sequence[Item]) -> dict[str, str]:
    """Return under which encryption messages are compared and weighed; empty if none are."""
    found = {}
    for item in items:
        for name, said in (("cosine", "what is compared"), ("weigh", "what is weighed")):
            for guard in item.guards:
                if item.step is Step.UP and guard.startswith(f"{name}(scheme="):
                    found[said] = guard.split("=", 1)[1].partition(",")[0]
    return found


def warnings(
    items: Sequence[Item],
    data: DataPlan,
    policy: PrivacyPolicy,
    *,
    private: bool = False,
    fewest: bool = False,
    others: int = 0,
    rows: Mapping[str, int] | None = None,
) -> list[str]:
    """Return what a reader of the plan must know before approving it.

    Args:
        items: of the plan.
        data: of the plan.
        policy: of the plan.
        private: training hides single records.
        fewest: no more clients take part than the policy's smallest cohort.
        others: clients beside a receiver; 0 if that is not known.
        rows: messages with rows, and how many clients hold each at least.
    """
    found = []
    if data.synthetic:
        found.append("the data are SYNTHETIC (generated)")
    for item in items:
        if item.unsafe and not _under(item, "match("):  # those boxes are locked; see below
            found.append(f"UNSAFE: {item.id} leaves in clear")
    masked = any(item.part is Service.PAIRS for item in items)
    opened = any((item.part, item.step) == (Disclosure.SUM, Step.OPEN) for item in items)
    if opened and not masked:
        found += [ACTIVE_AGGREGATOR, KEY_THEFT]
    found += [*_results(items), *_many(items, others), *mixed_warnings(items, policy)]
    found += match_warnings(items)
    if fewest and ROWS in found:
        found.append(EVEN)
    found += [*single_contributors(items, rows or {}), *shown_rows(items, policy)]
    if private:
        found.append("totals are of noised gradients, but hide single records only, not a client")
    elif not any(item.noise is not None for item in items):
        found.append("the totals themselves are disclosed and are not noised")
    return list(dict.fromkeys(found))
