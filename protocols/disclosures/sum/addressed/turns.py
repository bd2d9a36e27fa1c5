"""Whose turn it is to read a total, and that it is among those whom the total counts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from protocols.plan.plan import Item, Plan, times_in_round
from protocols.wire.where import Where

CLIENT = "client"
"""The `reader` of a plan's item whose total one client reads."""
_NAMED = 12


def reader_of(item: Item, where: Where) -> str:
    """Return which client reads the total of an Ask; empty: the aggregator does.

    Args:
        item: under which its summands travel.
        where: its place. The slot, on which the masks rest too, says whose turn it is.
    """
    return whose_turn(where.members, where.slot) if item.reader else ""


def whose_turn(members: Collection[str], slot: int) -> str:
    """Return the reader of the sum that has so many before it in its round: all in turn, by name.

    Without clients there is none.
    """
    return sorted(members)[slot % len(members)] if members else ""


def missing(item: Item, where: Where, survivors: Collection[str]) -> bool:
    """Tell whether the one reader of a total is not among those whose uploads it counts.

    Then its blind is not in the total, and what is opened would be the others' total in clear.
    """
    reader = reader_of(item, where)
    return bool(reader) and reader not in survivors


def none_left(plan: Plan, item: Item, where: Where) -> bool:
    """Tell whether all that are asked had their turns: one of them would read once more.

    A round of fewer clients than the plan's has fewer turns.
    """
    each = times_in_round(item, where.round, plan.rounds) // len(plan.clients)
    return bool(item.reader) and where.slot >= each * len(where.members)


def turns(clients: Sequence[str]) -> str:
    """Say in words whose turn it is."""
    names = sorted(clients)
    listed = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return f"in turn, by name, from the first sum of each round on: {listed}"
