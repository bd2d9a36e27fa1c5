"""In words: what rows tell that rest on few clients, or that one client shows by itself (O12)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from protocols.decoys import local_epsilon
from protocols.disclosures import Disclosure
from protocols.guards import find
from protocols.plan import Item
from protocols.policy import PrivacyPolicy

__all__ = ["local_noise", "single_contributors"]

HELD = (
    "{}: a row of the total rests on at least {} clients, as the first sum counted them; who "
    "vanishes later is missing. That sum is disclosed: how many clients hold each row, and a count "
    "of one says that some client does (O12)"
)


def single_contributors(items: Sequence[Item], holders: int) -> list[str]:
    """Warn of sums with vectors, whose entries may have one contributor.

    Args:
        items: of the plan.
        holders: clients that hold every row of a sum that has rows.
    """
    vectors = [item for item in items if _vector_sum(item)]
    if holders > 1:
        return [HELD.format(item.id, holders) for item in vectors]
    return [
        f"{item.id}: an entry of the total may have a single contributor "
        f"({'; '.join(_single(item))}); the plan cannot exclude it (O12)"
        for item in vectors
    ]


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


def local_noise(items: Sequence[Item], policy: PrivacyPolicy) -> list[str]:
    """Return what Laplace noise on single clients' numbers comes to, beside the whole message."""
    chain, found = policy.rules.get(Disclosure.NOISED, ()), []
    noise, one = find(chain, "laplace"), local_epsilon(chain)
    for item in items:
        if item.disclosure is not Disclosure.NOISED or noise is None:
            continue
        if one is None:
            found.append(f"{item.id}: no epsilon: its noise's scale depends on the data (O21)")
            continue
        fields = [f for m in item.messages for f in m.fields if f.dtype in ("f4", "f8")]
        numbers = sum(math.prod(field.shape) for field in fields)
        found.append(
            f"{item.id}: epsilon = {one:g} per coordinate, per round, and {one * numbers:g} for a "
            f"whole message of {numbers} coordinates, {one * numbers * item.times:g} for the run "
            "(unit: coordinate, message; adjacency: replace-one; model: local; scope: as said; "
            "delta = 0; assumptions: none on sampling); not covered: which rows are sent, and "
            "rows drawn from the client's own"
        )
    return found
