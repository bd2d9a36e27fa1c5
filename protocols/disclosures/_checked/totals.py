"""What clients compute of a total themselves, and the checks that show it true (ADR 0029)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.errors import CryptoError
from crypto.masks import Words, container
from crypto.signing import canonical
from crypto.sum_check import SumCheck
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.layout import Ring, SumLayout, sum_layout
from protocols.disclosures.sum.view import Summands, TotalView
from protocols.errors import BadEnvelope, LocalProtocolError, UnfitMessage
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.rounds import Reply
from protocols.sessions.part import Collection
from protocols.wire.roster import cohort_digest
from protocols.wire.run_context import RunContext

# Checks of sums, and totals in few bytes: what clients compute models from (`plan.models`).


@dataclass(frozen=True)
class Place:
    """Which sum a total is of.

    Attributes:
        round: of the Ask.
        exchange: its number.
        members: who was asked.
        history: digest of the totals that led to the model that it was answered on.
    """

    round: int
    exchange: int
    members: tuple[str, ...]
    history: bytes


def sum_check(context: RunContext, item: Item, ring: Ring, place: Place) -> SumCheck:
    """Return the check of one sum, at a client.

    Raises:
        LocalProtocolError: the clients' common key is not here.
    """
    if context.pairs is None or not context.pairs.common.key:
        raise LocalProtocolError("The key that clients check totals with is not here.")
    run, plan = context.run, context.plan_digest
    cohort = cohort_digest(run, plan, place.round, 1, place.members)
    numbers = f"{place.round}", f"{place.exchange}"
    facts = [run, plan, item.label, *numbers, cohort, place.history.hex()]
    label = hashlib.sha256(b"secure-fgl/sum-check\0" + canonical(facts)).hexdigest()
    return SumCheck(context.pairs.common.key, label, item.checked, ring.modulus, ring.total_bits)


def history(context: RunContext) -> bytes:
    """Return the digest of the totals that led to a client's model; empty before the first."""
    found = context.held.get(str(Disclosure.RELEASED), b"")
    if not isinstance(found, bytes):
        raise LocalProtocolError("What led to this client's model is not here.")
    return found


def width_of(ring: Ring) -> int:
    """Return in how many bytes each integer of a total stands."""
    return -(-ring.total_bits // 8)


def packed(total: NDArray[np.int64], ring: Ring) -> bytes:
    """Return a total's integers in `width_of` bytes each, little-endian."""
    lifted = (total + ring.margin).astype("<u8")
    return lifted.view(np.uint8).reshape(-1, 8)[:, : width_of(ring)].tobytes()


def unpacked(data: bytes, ring: Ring, clients: int) -> NDArray[np.int64]:
    """Return the integers of a total over so many clients.

    Raises:
        BadEnvelope: one is outside what they can add up to.
    """
    width = width_of(ring)
    if len(data) % width:
        raise BadEnvelope("A total is cut in the middle of an integer.")
    # Eight bytes from each integer's place on, of which those beyond its width are its neighbours'.
    shape, room = (len(data) // width,), data + bytes(8 - width)
    wide = np.ndarray(shape, np.dtype("<u8"), room, strides=(width,))
    lifted: NDArray[np.uint64] = wide & np.uint64(2 ** (8 * width) - 1)
    total = lifted.view(np.int64) - ring.margin
    if np.any(total > clients * (2**ring.bits - 1) + ring.margin):
        raise BadEnvelope("A total is larger than its clients can produce.")
    return total


def words(data: bytes, ring: Ring) -> Words:
    """Return the words of a check as they stand in a message."""
    return np.frombuffer(data, dtype=container(ring.modulus))


def names(mask: bytes, context: RunContext, within: Sequence[str]) -> tuple[str, ...]:
    """Return whom a mask names; raises BadEnvelope for clients outside `within`."""
    found = context.roster.unmask(mask)
    if not set(found) <= set(within):
        raise BadEnvelope("A total counts clients that were not asked.")
    return found


# A total that moves a model, at the aggregator that has it and at clients that are handed it.


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
