"""Blinds: uniform residues that the reader of a total uploads in the place of a value."""

from __future__ import annotations

import numpy as np

from crypto.errors import CryptoError
from crypto.masks import container, masked
from crypto.samplers import derive
from protocols.disclosures.sum.addressed.turns import reader_of
from protocols.disclosures.sum.messages import BlindTotal
from protocols.disclosures.sum.ring import Ring, Words
from protocols.errors import BadEnvelope, LocalProtocolError, UnfitMessage
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.policy.guard import find
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


def in_clear(context: RunContext, item: Item) -> bool:
    """Tell whether an Unsafe chain brings summands in clear: a blind would hide nothing."""
    return find(context.policy.chain(item.disclosure), "unsafe_clear") is not None


def blind_of(context: RunContext, item: Item, where: Where, ring: Ring) -> Words | None:
    """Return what this client uploads if it reads this total: its blind, shape (ring.size,).

    In clear zeros: nothing is added to the others' values. None if it does not read it.

    Raises:
        LocalProtocolError: no blind was drawn for this very Ask.
    """
    if reader_of(item, where) != context.me.party.name:
        return None
    nothing = np.zeros(ring.size, dtype=container(ring.modulus))
    if in_clear(context, item):
        return nothing
    drawn, context.blind = context.blind, None  # one upload for each
    if drawn is None or drawn[0] != where.exchange:
        raise LocalProtocolError("No blind was drawn for the total that this client is to read.")
    return masked(nothing, ring.modulus, [_key(context, item, where, drawn[1])], [], spare=False)


def read_total(
    context: RunContext,
    item: Item,
    where: Where,
    kind: type[Message],
    message: BlindTotal,
    seed: bytes,
) -> Message:
    """Take a blind off a total.

    Args:
        context: of the client that reads it.
        item: under which the summands travelled.
        where: of the Ask that they answered.
        kind: of the summands.
        message: what the aggregator handed on.
        seed: of the blind.

    Raises:
        BadEnvelope: this is no total of so many clients under this blind.
    """
    layout, ring = context.summed(item, (kind,))
    try:
        if in_clear(context, item):
            totals = np.frombuffer(message.total, dtype="<i8").astype(np.int64)
        else:
            words = np.frombuffer(message.total, dtype=container(ring.modulus))
            key = _key(context, item, where, seed)
            totals = ring.integers(masked(words, ring.modulus, [], [key]))
        return layout.decode(totals, message.answers, margin=item.margin)[kind]
    except (CryptoError, UnfitMessage, ValueError) as error:
        raise BadEnvelope(
            "What was handed on as a total is none under this client's blind.",
            why="it is of another Ask or for another client, or the aggregator changed it",
            fix="nothing of it is used",
        ) from error


def _key(context: RunContext, item: Item, where: Where, seed: bytes) -> bytes:
    """Return the key of a blind, bound to the one sum that it is for."""
    place = (f"{where.round}", f"{where.attempt}", f"{where.exchange}", f"{where.slot}")
    facts = context.run, context.plan_digest, *place, context.cohort(where), item.label
    return derive(seed, "total blind", *facts)
