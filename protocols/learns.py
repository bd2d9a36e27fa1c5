"""In words: what each role learns from an item, given how it is protected."""

from __future__ import annotations

from protocols.disclosures import Disclosure
from protocols.guards import Guard, find

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
        return {
            "aggregator": "only the cohort's total (and who took part)",
            "key_authority": "uniform noise, and who took part when",
            "other clients": "nothing",
            "network": network,
        }
    if disclosure is Disclosure.SEALED:
        return {"aggregator": "size only", "addressee": "its own row", "network": _NETWORK}
    return {"aggregator": disclosure.meaning, "network": network}


_DOWN = {
    Disclosure.RELEASED: "what was computed from disclosed totals (the global model)",
    Disclosure.WEIGHTED_SUM: "its own weighted combination",
    Disclosure.MATCH: "what others hold under its own keys",
    Disclosure.SEALED: "what other clients addressed to it",
}
