"""What one plan would do beyond another, which somebody approved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocols.plan.plan import Item, Plan, plugin_of
from protocols.strict import Strict

_SAME = (
    "version",
    "algorithm",
    "form",
    "data",
    "policy",
    "policy_digest",
    "policy_fields",
    "scheme",
    "budget",
    "dims",
    "seed",
    "training",
    "splits",
    "drawn",
    "topology",
)


_ITEM_SAME = (
    "exchange",
    "part",
    "step",
    "way",
    "label",
    "sender",
    "recipient",
    "disclosure",
    "messages",
    "guards",
    "unsafe",
    "dims",
    "noise",
    "counted",
    "model",
    "checked",
    "reader",
    "follows",
    "learns",
)


def code_drift(approved: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """List whose code is not the approved one: disclosures' folders, and plug-ins."""
    found = []
    for entry in sorted({*approved, *wanted}):
        if approved.get(entry) == wanted.get(entry):
            continue
        kind, name = plugin_of(entry) or ("code", f"protocols/disclosures/{entry}")
        what = f"plug-in {name} ({kind})" if plugin_of(entry) else f"code: {name}"
        if entry not in approved:
            found.append(f"{what}: not in the approved plan")
        elif entry not in wanted:
            found.append(f"{what}: in the approved plan, and not here")
        else:
            found.append(f"{what}: another one is here than was approved")
    return found


def drift(approved: Plan, wanted: Plan) -> list[str]:
    """List what `wanted` would do beyond `approved`; empty if nothing is new.

    Fewer rounds, fewer items and a larger minimum cohort are no drift; everything else is.
    """
    found = [
        _change(name, getattr(approved, name), getattr(wanted, name))
        for name in _SAME
        if getattr(approved, name) != getattr(wanted, name)
    ]
    found += code_drift(approved.code, wanted.code)
    if wanted.minimum_records < approved.minimum_records:
        found.append("minimum_records: sites with records of fewer persons would train")
    if wanted.smallest_cohort < approved.smallest_cohort:
        found.append("smallest_cohort: smaller groups would be opened")
    if _fewer(approved.withstands, wanted.withstands):
        found.append("withstands: fewer clients that help the aggregator open single uploads")
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


def _fewer(old: int | None, new: int | None) -> bool:
    """Tell whether a plan withstands fewer than another one; without masks nothing is claimed."""
    return old is not None and (new is None or new < old)


_LONGEST = 40
"""Characters of a value that is shown; digests and sentences are longer."""


def _change(name: str, old: Any, new: Any) -> str:
    """Say what changed, with both values where they are short."""
    if isinstance(old, Strict) and isinstance(new, Strict):
        old, new = old.model_dump(), new.model_dump()
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        return f"{name}: {', '.join(keys)} changed"
    if all(isinstance(value, str | int) and len(str(value)) <= _LONGEST for value in (old, new)):
        return f"{name}: {old!r} became {new!r}"
    return f"{name} changed"


def _item_drift(old: Item, new: Item) -> list[str]:
    found = []
    for name in _ITEM_SAME:
        if getattr(old, name) != getattr(new, name):
            found.append(f"{new.id}: {name} changed")
    for name in ("bytes", "body", "per_round", "times"):
        if getattr(new, name) > getattr(old, name):
            found.append(f"{new.id}: {name} grew from {getattr(old, name)} to {getattr(new, name)}")
    return found
