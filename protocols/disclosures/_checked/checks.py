"""Checks of sums, and totals in few bytes: what clients compute models from (`plan.models`)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crypto.masks import Words, container
from crypto.signing.canonical import canonical
from crypto.sum_check import SumCheck
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.ring import Ring
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.plan.plan import Item
from protocols.wire.roster import cohort_digest
from protocols.wire.run_context import RunContext


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
