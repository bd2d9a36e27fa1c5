"""In words: what each role learns from an item, and what a reader of the plan must know."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.disclosures import Disclosure
from protocols.guards import Guard, encryption, find
from protocols.plan import DataPlan, Item
from protocols.policy import PrivacyPolicy

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


def budget(items: Sequence[Item], policy: PrivacyPolicy) -> str:
    """Return, in one sentence, what the run spends and what that covers (O16)."""
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


def warnings(items: Sequence[Item], data: DataPlan) -> list[str]:
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
    vectors = [item.id for item in items if _vector_sum(item)]
    if vectors:
        found.append(
            f"{', '.join(vectors)}: an entry of the total may have a single contributor (a feature "
            "that only one client has); the plan cannot exclude it (O12)"
        )
    if not any(item.noise is not None for item in items):
        found.append("the totals themselves are disclosed and are not noised")
    return found
