"""A total that moves a model, at the aggregator that has it and at clients that are handed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crypto.errors import CryptoError
from protocols.disclosures._checked.checks import Place, packed, sum_check, unpacked, words
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.layout import SumLayout, sum_layout
from protocols.disclosures.sum.view import Summands, TotalView
from protocols.errors import BadEnvelope, LocalProtocolError, UnfitMessage
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.rounds import Reply
from protocols.sessions.collection import Collection
from protocols.wire.run_context import RunContext


def total_of(context: RunContext, answers: Collection) -> Mapping[str, Any] | None:
    """Return, as fields of a message, the total that an Ask brought back; None if it has no check.

    Raises:
        LocalProtocolError: it is not here.
    """
    sums = answers.get(Disclosure.SUM, Summands)
    if sums is None or not sums.item.checked:
        return None
    if sums.total is None or sums.check is None:
        raise LocalProtocolError("A total has no check.")
    roster, where = context.roster, sums.where
    ring = context.summed(sums.item, sums.kinds)[1]
    return {
        "exchange": where.exchange,
        "round": where.round,
        "members": roster.mask(where.members),
        "survivors": roster.mask(sums.survivors),
        "total": packed(sums.total[: sums.item.checked], ring),
        "check": sums.check.tobytes(),
    }


def reply_of(
    context: RunContext,
    item: Item,
    kinds: tuple[tuple[type[Message], ...], tuple[type[Message], ...]],
    place: Place,
    found: tuple[bytes, bytes, Sequence[str]],
) -> Reply:
    """Return what the aggregator read of a sum, at a client.

    Args:
        context: of the client.
        item: of the sum.
        kinds: all messages of the sum, and those that have a check.
        place: which sum it is.
        found: the total, its check, and whom it counts.

    Raises:
        BadEnvelope: it is not what these clients added up.
    """
    total, check, survivors = found
    ring = context.summed(item, kinds[0])[1]
    integers = unpacked(total, ring, len(survivors))
    margin = item.noise.margin if item.noise else 0
    try:
        sum_check(context, item, ring, place).verify(integers, words(check, ring), survivors)
        layout = _layout(context, item, kinds[1])
        read = layout.decode(integers, len(survivors), margin=margin)
    except (CryptoError, UnfitMessage) as error:
        raise BadEnvelope(
            "A total is not what the clients it names added up.",
            why="the aggregator changed it, or a client sent a false check",
            fix="do not trust this aggregator until it is known which of them it was",
        ) from error
    return Reply({k: TotalView(message) for k, message in read.items()}, len(survivors))


def largest_change(context: RunContext, item: Item, kinds: tuple[type[Message], ...]) -> float:
    """Return the largest real number in a sum by one client, with the noise of all (O19)."""
    grids = [column.grid for column in _layout(context, item, kinds).columns]
    margin = item.noise.margin if item.noise else 0
    return max(grid.bound + margin * grid.step for grid in grids if grid is not None)


def _layout(context: RunContext, item: Item, kinds: tuple[type[Message], ...]) -> SumLayout:
    return sum_layout(kinds, context.policy.chain(Disclosure.SUM), context.dims(item))
