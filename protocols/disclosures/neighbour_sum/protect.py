"""From one vector to a box for every neighbour: rounded once, weighed and masked for each."""

from __future__ import annotations

from typing import Any

from crypto.masks import masked
from crypto.samplers import Stream, entropy
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures.neighbour_sum.layout import box_info, commitment, grid_of
from protocols.disclosures.sum.masked.uniform import check_mask
from protocols.disclosures.sum.ring import Words
from protocols.errors import LocalProtocolError, NotInPlan
from protocols.keys.boxes import close_box
from protocols.keys.slots import slot_of
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.schema import Layout
from protocols.plan.topology import TopologyPlan
from protocols.policy.guard import find
from protocols.wire.header import NONE, Header
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


def _topology(context: RunContext) -> TopologyPlan:
    if context.plan.topology is None:
        raise NotInPlan("A message goes to neighbours, and the plan says of nobody who they are.")
    return context.plan.topology


class NeighbourProtection(Protection):
    """Integers on a grid; every neighbour's box holds them under other masks."""

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return the grid."""
        chain, dims = context.policy.chain(item.disclosure), context.dims(item)
        return grid_of(context.plan.topology, kinds, chain, dims).layout

    def agreed(self, context: RunContext, item: Item, where: Where) -> str:
        """Return what the masks rest on; NONE in clear."""
        if context.pairs is None or not find(context.policy.chain(item.disclosure), "seal"):
            return NONE
        return context.pairs.agreement(slot_of(item, where.round, where.slot))

    def prepare(self, release: Release) -> Any:
        """Round, and state in the ledger which vector all neighbours are given.

        The rounding may be repeated from the run's seed, as no claim rests on it; the salt may not.
        """
        grid = grid_of(release.context.plan.topology, release.kinds, release.chain, release.dims)
        stream = Stream(release.seeded("rounding"))
        integers, clipped = grid.layout.encode(release.messages, stream)
        digest = commitment(entropy(32), integers)
        where = release.where
        facts: dict[str, object] = {
            "commitment": digest.hex(),
            "exchange": where.exchange,
            "round": where.round,
        }
        release.record("offered", facts)
        return integers, clipped, digest

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Weigh, mask and seal for each neighbour whose whole neighbourhood takes part.

        For the others there are zeros: a sum that lacks somebody is never opened, so nothing is
        sent towards one. In clear the same vectors stand there, unmasked.
        """
        integers, clipped, digest = prepared
        context, item, where = release.context, release.item, release.where
        topology, me = _topology(context), context.me.party.name
        grid = grid_of(topology, release.kinds, release.chain, release.dims)
        receivers, asked = topology.neighbours(me), {*where.members}
        groups = {r: topology.neighbours(r) for r in receivers if r in asked}
        groups = {r: group for r, group in groups.items() if asked.issuperset(group)}
        keys = None
        if find(release.chain, "mask_neighbours"):
            if context.pairs is None:
                raise LocalProtocolError("The pair secrets of this epoch are not here.")
            slot, alone = slot_of(item, where.round, where.slot), context.pairs.alone
            label = context.mask_label(item, where, header.key, header.pairs)
            groups = {r: group for r, group in groups.items() if alone.paired(slot, group)}
            keys = alone.keys(slot, groups, label)
        boxes = []
        for receiver in receivers:
            if receiver not in groups:
                boxes.append(bytes(grid.box_bytes))
                continue
            residues = grid.ring.residues(integers * topology.shares[me][receiver])
            info = box_info(context.run, where.exchange, item.id, me, receiver)
            if keys is None:
                boxes.append((digest + residues.tobytes()).ljust(grid.box_bytes, b"\0"))
                continue
            hidden = _masked(residues, grid.ring.modulus, *keys[receiver])
            party = context.roster.party(receiver)
            boxes.append(close_box(digest + hidden.tobytes(), context.me, party, info))
        return b"".join(boxes).ljust(topology.width * grid.box_bytes, b"\0"), clipped


def _masked(residues: Words, modulus: int, plus: list[bytes], minus: list[bytes]) -> Words:
    """Add this client's masks; raises LocalProtocolError where they are none."""
    hidden = masked(residues, modulus, plus, minus)
    check_mask(residues, hidden, modulus)
    return hidden


PROTECT = NeighbourProtection()
