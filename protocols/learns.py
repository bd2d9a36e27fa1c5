"""In words: what each role learns from an item, and what a reader of the plan must know."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.disclosures import Disclosure
from protocols.guards import Guard, encryption, find
from protocols.plan import DataPlan, Item
from protocols.policy import PrivacyPolicy
from protocols.training import TrainingPlan

_NETWORK = "sender, recipient, time and size"
_CLEAR = "EVERYTHING: the message in clear"


def learns(disclosure: Disclosure, chain: tuple[Guard, ...], up: bool) -> dict[str, str]:
    """Return, per role, what an item of this disclosure and protection tells it.

    Args:
        disclosure: of the item.
        chain: the policy's guards for it.
        up: True from client to aggregator, False from aggregator to client.
    """
    clear = find(chain, "unsafe_clear") is not None
    network = _NETWORK if find(chain, "seal") else _CLEAR
    if not up:
        return {"client": _DOWN.get(disclosure, disclosure.meaning), "network": network}
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
    if disclosure is Disclosure.SEALED:
        return {"aggregator": "size only", "addressee": "its own row", "network": _NETWORK}
    return {"aggregator": disclosure.meaning, "network": network}


def _noised(chain: tuple[Guard, ...]) -> str:
    return "noised " if find(chain, "noise") else ""


_DOWN = {
    Disclosure.RELEASED: "what was computed from disclosed totals (the global model)",
    Disclosure.WEIGHTED_SUM: "its own weighted combination",
    Disclosure.MATCH: "what others hold under its own keys",
    Disclosure.SEALED: "what other clients addressed to it",
}


BUDGET_WITHOUT_NOISE = (
    "no noise is added: epsilon = infinity for the run; covered: nothing; not covered: all messages"
)


def budget(
    items: Sequence[Item], policy: PrivacyPolicy, training: TrainingPlan | None = None
) -> str:
    """Return, in one sentence a unit, what the run spends and what that covers (O16)."""
    spent = _spent(items)
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


def _from_data(item: Item) -> bool:
    """Tell whether a client computes this item from its data."""
    control = ("key.", "pair.", "refusal.")
    return ".up." in item.id and not item.id.startswith(control)


ACTIVE_AGGREGATOR = "an active aggregator can have a single upload opened"
KEY_THEFT = (
    "one crafted ciphertext, opened, gives an active aggregator the run's secret key and so every "
    "upload of the run; a dishonest client can bring the key out through the total"
)


def _vector_sum(item: Item) -> bool:
    fields = (field for message in item.messages for field in message.fields)
    plain = item.disclosure is Disclosure.SUM and item.noise is None
    return ".up." in item.id and plain and any(f.shape for f in fields)


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


def warnings(items: Sequence[Item], data: DataPlan, *, private: bool = False) -> list[str]:
    """Return what a reader of the plan must know before approving it."""
    found = []
    if data.synthetic:
        found.append("the data are SYNTHETIC (generated)")
    for item in items:
        if item.unsafe:
            found.append(f"UNSAFE: {item.id} leaves in clear")
    masked = any(item.id == "pair.down" for item in items)
    if any(item.id.endswith(".open") for item in items) and not masked:
        found += [ACTIVE_AGGREGATOR, KEY_THEFT]
    for item in items:
        if _vector_sum(item):
            found.append(
                f"{item.id}: an entry of the total may have a single contributor "
                f"({'; '.join(_single(item))}); the plan cannot exclude it (O12)"
            )
    if private:
        found.append("totals are of noised gradients, but hide single records only, not a client")
    elif not any(item.noise is not None for item in items):
        found.append("the totals themselves are disclosed and are not noised")
    return found
