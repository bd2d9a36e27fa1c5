"""In words: what rows tell that rest on few clients, or that one client shows by itself (O12)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.decoys import local_epsilon
from protocols.disclosures.noised.guards import Decoys
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy

__all__ = ["local_noise", "shown_rows", "single_contributors"]

HELD = (
    "{}: a row of the total rests on at least {} clients if the aggregator is semi-honest: who "
    "holds an item is counted with the first sum, which it alone reads, so no client can check "
    "what it is told; others' counts are their word; who vanishes later is missing. The count is "
    "disclosed: a one says that some client holds the item, and counts of two runs that differ by "
    "one client name its items (O12)"
)
SINGLE = (
    "an item's row with a single contributor is that user's own: in matrix factorisation it gives "
    "the user's vector and the ratings of such items, and the vector tells which rows of several "
    "users it is in"
)


def single_contributors(items: Sequence[Item], rows: Mapping[str, int]) -> list[str]:
    """Warn of sums with vectors, whose entries may have one contributor.

    Args:
        items: of the plan.
        rows: messages that have rows, and how many clients hold each of them at least.
    """
    found = []
    for item in filter(_vector_sum, items):
        holders = {rows[message.name] for message in item.messages if message.name in rows}
        if holders and min(holders) > 1:
            found.append(HELD.format(item.id, min(holders)))
            continue
        told = _single(item) + [SINGLE] * bool(holders)
        found.append(
            f"{item.id}: an entry of the total may have a single contributor "
            f"({'; '.join(told)}); the plan cannot exclude it (O12)"
        )
    return found


def shown_rows(items: Sequence[Item], policy: PrivacyPolicy) -> list[str]:
    """Warn of what rows among decoys tell, which one client shows by itself."""
    decoys = find(policy.rules.get(Disclosure.NOISED, ()), "decoys")
    if not isinstance(decoys, Decoys):
        return []
    again = (
        "decoys are drawn anew in every round, so rows that stay are the client's own (A01)"
        if decoys.draw == "fresh"
        else "decoys are drawn once in a run, so rows that stay over runs are the client's own"
    )
    return [
        f"{item.id}: {again}; which rows are sent, and that others are not, stands outside every "
        "epsilon; of a client that holds more than half as many, half of the rows are its own"
        for item in items
        if item.disclosure is Disclosure.NOISED
    ]


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


_BESIDE = {
    Disclosure.NOISED: "which rows are sent, and rows drawn from the client's own",
    Disclosure.MATCH: "which items a client holds, nor by which of them its vector reaches others",
}
"""What noise on single clients' numbers leaves open."""


def local_noise(items: Sequence[Item], policy: PrivacyPolicy) -> list[str]:
    """Return what Laplace noise on single clients' numbers comes to, beside the whole message."""
    found = []
    for item in items:
        chain = policy.rules.get(item.disclosure, ())
        if item.disclosure not in _BESIDE or find(chain, "laplace") is None:
            continue
        one = local_epsilon(chain)
        if one is None:
            found.append(f"{item.id}: no epsilon: its noise's scale depends on the data (O21)")
            continue
        fields = [f for m in item.messages for f in m.fields if f.dtype in ("f4", "f8")]
        numbers = sum(math.prod(field.shape) for field in fields)
        found.append(
            f"{item.id}: epsilon = {one:g} per coordinate, per round, and {one * numbers:g} for a "
            f"whole message of {numbers} coordinates, {one * numbers * item.times:g} for the run "
            "(unit: coordinate, message; adjacency: replace-one; model: local; scope: as said; "
            "delta < 2^-200, of the sampler; assumptions: none on sampling); not covered: "
            f"{_BESIDE[item.disclosure]}"
        )
    return found
