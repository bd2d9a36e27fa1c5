"""Which messages the noise covers (O16), and which say something of a client's data without it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from audits.accounting.models import Uncovered
from audits.evidence.drift import Yardstick
from audits.evidence.ledger_index import LedgerIndex
from protocols.plan.plan import Item, Plan
from protocols.plan.steps import Service, Step, item_id
from protocols.wire.control import CONTROL, REFUSALS
from protocols.wire.roles import Role

_OWN = frozenset(kind.__name__ for kind in CONTROL)
_ALONE = "own_noise("
_NOISES = ("noise(", _ALONE)


def is_own(item: Item) -> bool:
    """Tell whether an item holds nothing but the layer's own messages.

    What an algorithm's answer holds is uploaded; nothing of the layer's own is.
    """
    own = {message.name for message in item.messages} <= _OWN
    return own and item.step is not Step.UP


def derived(plan: Plan) -> tuple[Item, ...]:
    """Return the items that a client makes from its data: all that it sends but the layer's own."""
    sent = (i for i in plan.items if i.sender == Role.CLIENT and not i.follows)
    return tuple(item for item in sent if not is_own(item))


def objection(item: Item) -> str | None:
    """Return why an item is not covered, or None if its noise covers all of it."""
    if item.noise is None:
        return "no noise"
    if not noised(item.guards):
        return "noise is planned, and its guards do not add it"
    if any(guard.startswith(_ALONE) for guard in item.guards) != item.noise.local:
        return "noise of one's own and noise that is shared are planned in each other's place"
    shapes = (field.shape for message in item.messages for field in message.fields)
    entries = sum(abs(prod(shape)) for shape in shapes)  # a plan is a file: sizes may be anything
    if entries > item.noise.coordinates:
        return f"noise on {item.noise.coordinates} of {entries} entries"
    return None


def noised(guards: tuple[str, ...] | list[str]) -> bool:
    """Tell whether a chain of guards, as plans and ledgers print it, adds noise."""
    return any(guard.startswith(_NOISES) for guard in guards)


def coverage(
    ledger_index: LedgerIndex, yardstick: Yardstick
) -> tuple[tuple[str, ...], tuple[Uncovered, ...]]:
    """Return the plan items that are covered, and those that are not with the first reason.

    Args:
        ledger_index: what was recorded; an item that was not planned, left without its noise, or
            was refused is not covered whatever the plan says, and nothing is if a ledger is
            unreadable.
        yardstick: the plan and the roster.
    """
    found: dict[str, str] = {}
    items = derived(yardstick.plan)
    for item in items:
        if why := objection(item):
            found[item.id] = why
    for id, why in _recorded(ledger_index, yardstick):
        found.setdefault(id, why)
    if silent := unread(ledger_index, yardstick):
        for item in items:
            found.setdefault(item.id, f"the ledger of {silent[0]} cannot be read")
    covered = tuple(item.id for item in items if item.id not in found)
    return covered, tuple(Uncovered(item=id, why=why) for id, why in found.items())


def left_bare(ledger_index: LedgerIndex, yardstick: Yardstick) -> tuple[str, ...]:
    """Return what left clients without noise, by the ledgers; refusals are no such things."""
    refusals = {i.id for i in yardstick.plan.items if i.part is Service.REFUSAL}
    refusals.add(item_id("", Service.REFUSAL, Step.REFUSE, Role.CLIENT))
    found = dict(_recorded(ledger_index, yardstick))
    own = {item.id for item in derived(yardstick.plan) if objection(item)}
    sent = {s.item for s in ledger_index.releases() if s.item in own}
    return tuple(sorted({*found, *sent} - refusals))


def unread(ledger_index: LedgerIndex, yardstick: Yardstick) -> tuple[str, ...]:
    """Return the clients that are looked at and whose ledgers are missing or broken."""
    return tuple(name for name in yardstick.clients if name not in ledger_index.entries)


def _recorded(ledger_index: LedgerIndex, yardstick: Yardstick) -> Iterator[tuple[str, str]]:
    for sent in ledger_index.releases():
        if yardstick.roles.get(sent.party) != Role.CLIENT:
            continue
        item = yardstick.items.get(sent.item)
        if item is None:
            yield sent.item[:60], "left and was not planned"
        elif item.part is Service.REFUSAL:
            yield item.id, f"a refusal left: one of {len(REFUSALS)} codes"
        elif item.noise is not None and not noised(sent.facts["protection"]):
            yield item.id, "left without its noise"
    for party, _ in ledger_index.of_kind("refusal"):
        if yardstick.roles.get(party) == Role.CLIENT:
            id = item_id("", Service.REFUSAL, Step.REFUSE, Role.CLIENT)
            yield id, f"a refusal was recorded: one of {len(REFUSALS)} codes"
