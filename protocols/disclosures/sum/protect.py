"""From values to a client's summand: rounded, noised, masked, encrypted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.masks import masked
from crypto.noise import sampler
from crypto.samplers import Stream, entropy
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._checked.checks import Place, history, sum_check
from protocols.disclosures.sum.addressed.blinds import blind_of
from protocols.disclosures.sum.guards import encryption
from protocols.disclosures.sum.masked.uniform import check_mask
from protocols.disclosures.sum.ring import Ring, Words
from protocols.errors import LocalProtocolError, NotInPlan, UnfitMessage
from protocols.keys.slots import slot_of
from protocols.messages import Message, addressed
from protocols.plan.plan import Item
from protocols.plan.schema import Layout
from protocols.policy.guard import find
from protocols.privacy.noising import SAMPLERS, check_noise
from protocols.privacy.own_noise import finite
from protocols.privacy.own_target import check_own
from protocols.privacy.record_noise import add_counted, check_counted
from protocols.wire.header import NONE, Header
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


class SumProtection(Protection):
    """Integers on a grid, in a ring."""

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return the grid; raises NotInPlan if the planned noise is not the policy's."""
        layout = context.summed(item, kinds)[0]
        if any(addressed(kind) != bool(item.reader) for kind in kinds):
            raise NotInPlan(f"{item.id}: another party reads this total than the plan says.")
        if find(context.policy.chain(item.disclosure), "own_noise"):
            check_own(context.plan, context.policy)
        else:
            check_noise(item, layout, context.plan, context.policy)
        check_counted(context.plan, context.policy)
        return layout

    def agreed(self, context: RunContext, item: Item, where: Where) -> str:
        """Return what the masks of a sum rest on; NONE without masks."""
        if context.pairs is None:
            return NONE
        return context.pairs.agreement(slot_of(item, where.round, where.slot))

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Round, add noise and masks, and encrypt, as far as the chain asks for each."""
        context, chain = release.context, release.chain
        ring, clipped = context.summed(release.item, release.kinds)[1], False
        residues = blind_of(context, release.item, release.where, ring)
        if residues is None:
            residues, clipped = _summand(release, ring)
        if find(chain, "mask"):
            residues = _masked(release, residues, ring, header)
        if not encryption(chain):
            return residues.tobytes(), clipped
        if context.scheme is None or context.he_key is None:
            raise LocalProtocolError("The key authority's public key is not here yet.")
        zeros, count = None, ring.size // context.scheme.degree
        if context.zeros is not None and context.scheme.offline:
            zeros = context.zeros.take(context.he_key, count)
        return context.scheme.encrypt(context.he_key, residues.astype("u8"), zeros), clipped


def _summand(release: Release, ring: Ring) -> tuple[Words, bool]:
    """Round a client's value and add its noise; return residues, and whether clip changed it."""
    noise, layout = release.item.noise, release.context.summed(release.item, release.kinds)[0]
    # Under noise a privacy claim rests on every draw, so none is seeded (O15).
    key = entropy(32) if noise else release.seeded("rounding")
    limit = float(noise.l2) if noise else None
    own_noise = noise is not None and noise.local
    # Under noise of one's own a refusal would tell of the value; nothing is told but the noise.
    messages = [finite(m) for m in release.messages] if own_noise else release.messages
    integers, clipped = layout.encode(messages, Stream(key), limit=limit)
    clipped = clipped and not own_noise  # ledgers and reports of it are handed out
    if noise:
        law = sampler(SAMPLERS[noise.mechanism], float(noise.sigma))
        integers += law.sample(Stream(entropy(32)), integers.size)
    if own_noise and noise is not None:  # likewise: beyond its head-room noise is cut off
        np.clip(integers, -noise.margin, (1 << layout.bits) - 1 + noise.margin, out=integers)
    add_counted(release.item, layout, integers)
    check = _check(release, integers, ring) if release.item.checked else None
    try:
        residues = ring.residues(integers, check)
    except OutOfRange as error:  # noise beyond its head-room: at most once in 2^40 runs
        raise UnfitMessage("A noised vector does not fit; nothing was sent.") from error
    return residues, clipped


def _check(release: Release, integers: NDArray[np.int64], ring: Ring) -> Words:
    """Return the words that let all clients check the total of what moves the model."""
    context, item, where = release.context, release.item, release.where
    place = Place(where.round, where.exchange, where.members, history(context))
    check = sum_check(context, item, ring, place)
    return check.of(integers[: item.checked], context.me.party.name)


def _masked(release: Release, residues: Words, ring: Ring, header: Header) -> Words:
    """Add this client's masks for the exact cohort to every residue (O4)."""
    context, item, where = release.context, release.item, release.where
    if context.pairs is None:
        raise LocalProtocolError("The pair secrets of this epoch are not here.")
    slot = slot_of(item, where.round, where.slot)
    label = context.mask_label(item, where, header.key, header.pairs)
    plus, minus = context.pairs.keys(slot, where.members, label)
    release.inside[item.id] = hidden = masked(residues, ring.modulus, plus, minus)
    check_mask(residues, hidden, ring.modulus)
    return hidden


PROTECT = SumProtection()
