"""What one plan would do beyond another, which somebody approved."""

from __future__ import annotations

from protocols.plan.plan import Item, Plan

_SAME = (
    "version",
    "algorithm",
    "form",
    "data",
    "policy",
    "policy_digest",
    "scheme",
    "budget",
    "dims",
    "code",
    "seed",
    "training",
)


_ITEM_SAME = (
    "exchange",
    "part",
    "step",
    "label",
    "sender",
    "recipient",
    "disclosure",
    "messages",
    "guards",
    "unsafe",
    "dims",
    "noise",
    "model",
    "checked",
    "learns",
)


def drift(approved: Plan, wanted: Plan) -> list[str]:
    """List what `wanted` would do beyond `approved`; empty if nothing is new.

    Fewer rounds, fewer items and a larger minimum cohort are no drift; everything else is.
    """
    found = [
        f"{name}: {getattr(approved, name)!r} became {getattr(wanted, name)!r}"
        for name in _SAME
        if getattr(approved, name) != getattr(wanted, name)
    ]
    if wanted.smallest_cohort < approved.smallest_cohort:
        found.append("smallest_cohort: smaller groups would be opened")
    if strangers := sorted(set(wanted.clients) - set(approved.clients)):
        found.append(f"clients: {len(strangers)} new")
    if wanted.rounds > approved.rounds:
        found.append(f"rounds: {approved.rounds} became {wanted.rounds}")
    found += [f"warning: {text}" for text in wanted.warnings if text not in approved.warnings]
    old = {item.id: item for item in approved.items}
    for item in wanted.items:
        if item.id not in old:
            found.append(f"{item.id}: new ({item.sender} -> {item.recipient}, {item.disclosure})")
        else:
            found += _item_drift(old[item.id], item)
    return found


def _item_drift(old: Item, new: Item) -> list[str]:
    found = []
    for name in _ITEM_SAME:
        if getattr(old, name) != getattr(new, name):
            found.append(f"{new.id}: {name} changed")
    for name in ("bytes", "body", "per_round", "times"):
        if getattr(new, name) > getattr(old, name):
            found.append(f"{new.id}: {name} grew from {getattr(old, name)} to {getattr(new, name)}")
    return found
