"""What one client agrees on with its neighbours for one epoch, and what it gives back of it.

Bonawitz et al. (CCS 2017) with secrets per slot, so that pairs may be agreed on once per epoch
(ADR 0007). Each pair of neighbours has a secret of two halves, each half sealed to the other with
HPKE (X25519 and ML-KEM-768 together, O31). From it every slot has a secret of its own. For every
slot a client also draws two seeds and shares them, t of n, among its neighbours and itself (O7):

    b   the key of its self-mask; rebuilt if its upload is there
    e   locks its row: its pairs' secrets of that slot; rebuilt if it vanished

A holder gives one of the two shares, never both and never again. What becomes known of one slot
says nothing about another.

Where all are neighbours, a box also brings what the key of checks is made of (`keys.common`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crypto.handles import Mute
from crypto.samplers import derive, entropy
from crypto.sharing import new_seed, split
from crypto.signing.canonical import canonical
from protocols.errors import BadEnvelope, CohortTooSmall, LocalProtocolError
from protocols.keys.alone import PairSlots
from protocols.keys.boxes import BOX_OVERHEAD, close_box, open_box
from protocols.keys.common import PART_BYTES, CommonKey
from protocols.keys.groups import Group, agreement
from protocols.keys.seeds import NOTHING, SEED_BYTES, cuts, locked_row, pair_key, self_key
from protocols.keys.slots import Slot
from protocols.messages import Vector
from protocols.wire.cohorts import as_set, shared, within
from protocols.wire.roster import Identity, Roster

_HALF_BYTES = 32
_SHARES_BYTES = 2 * SEED_BYTES  # per slot: of b, of e
_FORGOTTEN = bytes(_SHARES_BYTES)
_BY_SLOT = ("_b", "_e", "_given", "_held")


def pair_box_bytes(slots: int) -> int:
    """Return the size of the box that one client seals for a neighbour."""
    return _HALF_BYTES + PART_BYTES + slots * _SHARES_BYTES + BOX_OVERHEAD


class Pairs(Mute):
    """One client's secrets of one epoch. They live in memory only and are used up slot by slot.

    Args:
        me: who this client is.
        roster: whose keys the boxes are sealed to.
        group: of this epoch.
        slots: of this epoch.
        width: neighbours for which messages have room.
        common: what this client holds of the clients' common key.
        alone: slots of sums between neighbours, which nobody shares seeds of.
    """

    def __init__(
        self,
        me: Identity,
        roster: Roster,
        group: Group,
        slots: Sequence[Slot],
        width: int,
        common: CommonKey,
        alone: Sequence[Slot] = (),
    ) -> None:
        self.group, self.slots, self._width = group, tuple(slots), width
        self.alone = PairSlots(me.party.name, alone)
        self._places = {slot: place for place, slot in enumerate(self.slots)}
        self._labels = "\n".join(slot.label for slot in self.slots)
        self._me, self._roster, self._name = me, roster, me.party.name
        self._neighbours, self.common = group.neighbours(self._name), common
        self._halves = {peer: entropy(_HALF_BYTES) for peer in self._neighbours}
        self._b: dict[Slot, bytes] = {slot: new_seed() for slot in self.slots}
        self._e: dict[Slot, bytes] = {slot: new_seed() for slot in self.slots}
        self._pair: dict[Slot, dict[str, bytes]] = {}
        # By slot: shares of b and e of each holder in turn, zeros of who is away; never in place.
        self._held: dict[Slot, bytes] = {}
        self._owners: frozenset[str] = frozenset()  # whose shares are, or were, here
        self.there: tuple[str, ...] = ()
        self._given: dict[Slot, frozenset[str]] = {}  # owners whose shares are gone

    def kept(self) -> dict[str, Any]:
        """Return everything that is not derived from `group`, slot by slot."""
        peers, places = self._neighbours, self._places
        drawn, key = self.common.kept()
        return {
            **{n: {places[s]: v for s, v in getattr(self, n).items()} for n in _BY_SLOT},
            **{"alone": self.alone.kept(), "common_drawn": drawn, "common_key": key},
            "group": self.group,
            "halves": self._halves,
            "owners": self._owners,
            "pair": {
                places[slot]: b"".join([secrets.get(peer, NOTHING) for peer in peers])
                for slot, secrets in self._pair.items()
            },
            **{"slots": self._labels, "there": self.there, "width": self._width},
        }

    @classmethod
    def of_kept(cls, me: Identity, roster: Roster, kept: Mapping[str, Any]) -> Pairs:
        """Return what `kept` was taken from."""
        made = cls.__new__(cls)
        made.group, made._width, made.there = kept["group"], kept["width"], kept["there"]
        made._labels, labels = kept["slots"], kept["slots"].splitlines()
        made.slots = slots = tuple(map(Slot.of_label, labels))
        made.alone = PairSlots.of_kept(me.party.name, kept["alone"])
        made._places = {slot: place for place, slot in enumerate(slots)}
        made._me, made._roster, made._name = me, roster, me.party.name
        made.common = CommonKey(kept["common_drawn"], kept["common_key"])
        made._neighbours = peers = made.group.neighbours(made._name)
        made._halves, made._owners = kept["halves"], kept["owners"]
        for name in _BY_SLOT:
            setattr(made, name, {slots[place]: value for place, value in kept[name].items()})
        made._pair = {}
        for place, row in kept["pair"].items():
            found = zip(peers, cuts(row), strict=True)
            made._pair[slots[place]] = {peer: cut for peer, cut in found if cut != NOTHING}
        return made

    def _info(self, sender: str, addressee: str) -> bytes:
        return b"secure-fgl/pair\0" + canonical([self.group.digest, sender, addressee])

    def boxes(self) -> bytes:
        """Share both seeds of every slot and seal for each neighbour what is meant for it."""
        secrets = [seed for slot in self.slots for seed in (self._b[slot], self._e[slot])]
        holders = self.group.holders(self._name)
        rows = (
            split(secrets, self.group.threshold, len(holders)) if secrets else [[]] * len(holders)
        )
        mine = {holder: b"".join(row) for holder, row in zip(holders, rows, strict=True)}
        self._hold({self._name: mine[self._name]})
        sealed = b"".join(
            close_box(
                self._halves[peer] + self.common.part + mine[peer],
                self._me,
                self._roster.party(peer),
                self._info(self._name, peer),
            )
            for peer in self._neighbours
        )
        return sealed.ljust(self._width * pair_box_bytes(len(self.slots)), b"\0")

    def _hold(self, shares: Mapping[str, bytes]) -> None:
        """Hold these owners' shares of all slots."""
        nobody = bytes(len(self.slots) * _SHARES_BYTES)
        joined = b"".join([shares.get(o, nobody) for o in self.group.holders(self._name)])
        shape = len(joined) // max(1, len(nobody)), len(self.slots), _SHARES_BYTES
        table = np.frombuffer(joined, np.uint8).reshape(shape).transpose(1, 0, 2)
        for slot, row in zip(self.slots, table, strict=True):
            before = np.frombuffer(self._held.get(slot, bytes(row.size)), np.uint8)
            self._held[slot] = (before | row.ravel()).tobytes()
        self._owners = self._owners.union(shares)

    def take(self, boxes: bytes, senders: Sequence[str]) -> None:
        """Open the neighbours' boxes, and join each half with our own.

        Args:
            boxes: one per neighbour, sorted.
            senders: clients whose boxes are there; the others are absent for the whole epoch.

        Raises:
            BadEnvelope: a box is not from the neighbour it should be from.
        """
        if not self._halves or not self._owners:
            raise LocalProtocolError("The secrets of this epoch are here already.")
        size = pair_box_bytes(len(self.slots))
        self.there = shared(sorted(set(senders)))
        there = as_set(self.there)
        inside = self._name in there and there <= as_set(self.group.called)
        if not inside or self.group.thinnest(self.there) < self.group.window:
            raise BadEnvelope("Too few clients, or strangers, are said to have sent their boxes.")
        secrets: dict[str, bytes] = {}
        parts: dict[str, bytes] = {}
        shares: dict[str, bytes] = {}
        for place, peer in enumerate(self._neighbours):
            if peer not in there:
                continue
            box = boxes[place * size : (place + 1) * size]
            info = self._info(peer, self._name)
            content = open_box(box, self._me, self._roster.party(peer), info)
            theirs, rest = content[:_HALF_BYTES], content[_HALF_BYTES:]
            parts[peer], shares[peer] = rest[:PART_BYTES], rest[PART_BYTES:]
            if len(shares[peer]) != len(self.slots) * _SHARES_BYTES:
                raise BadEnvelope("A neighbour's box does not hold one pair of shares per slot.")
            mine = self._halves[peer]
            joined = mine + theirs if self._name < peer else theirs + mine
            secrets[peer] = derive(joined, "pair", self.group.run, f"{self.group.epoch}")
        self._hold(shares)
        self._pair = {
            slot: {peer: derive(secret, "slot", slot.label) for peer, secret in secrets.items()}
            for slot in self.slots
        }
        self.alone.fill(secrets)
        self._halves = {}
        if self.group.complete:
            self.common.agree(self._name, self.group.run, parts, self.group.colluders)

    def rows(self) -> bytes:
        """Return, locked slot by slot, this client's pair secrets; the seeds e are then forgotten.

        Only whoever rebuilds e from enough holders' shares can open a row.
        """
        place, locked = (self.group.run, self.group.epoch, self._name), list[bytes]()
        for slot in self.slots:
            row = [self._pair[slot].get(peer, NOTHING) for peer in self._neighbours]
            locked.append(locked_row(place, slot, self._e[slot], row, self._width))
        self._e = {}
        return b"".join(locked)

    def check_members(self, members: Sequence[str], smallest: int) -> None:
        """Refuse a cohort in which too few neighbours would mask this client.

        Raises:
            CohortTooSmall: fewer than `smallest` members, this client among them, are paired; on a
                sparse graph, fewer than its threshold if that is less.
        """
        reached = self._reached(members)
        if len(reached) + 1 < min(smallest, self.group.threshold):
            raise CohortTooSmall(
                "Too few members of this cohort share a secret with this client.",
                why="neighbours were away when the keys of this epoch were agreed on",
                fix="wait for the next epoch, or start the run again when all clients are there",
            )
        names = tuple(members)
        asked, there, cut_off = as_set(names), as_set(self.there), frozenset[str]()
        if len(reached) < len(self._neighbours):
            cut_off = asked.intersection(self._neighbours).difference(reached)
        left = [member for member in names if member not in cut_off] if cut_off else names
        if not within(names, there) or self.group.thinnest(left) < self.group.window:
            raise BadEnvelope("A cohort holds clients that were away when keys were agreed on.")

    def agreement(self, slot: Slot) -> str:
        """Return the digest of what the masks of a slot rest on."""
        return agreement(self.group, self.there, slot)

    def _reached(self, members: Sequence[str]) -> Sequence[str]:
        there, asked = self._owners, as_set(tuple(members))
        if len(there) > len(self._neighbours) and asked.issuperset(self._neighbours):
            return self._neighbours  # all of them: whose shares are here are these and itself
        return [peer for peer in self._neighbours if peer in asked and peer in there]

    def keys(
        self, slot: Slot, members: Sequence[str], label: Sequence[str]
    ) -> tuple[list[bytes], list[bytes]]:
        """Return the keys of the masks that this client adds, and of those it takes away.

        The slot's secrets are forgotten with it: a slot serves one vector (O6).

        Raises:
            LocalProtocolError: the slot was used before, or is not of this epoch.
        """
        given = self._given.get(slot, frozenset())
        if slot not in self._b or slot not in self._pair or self._name in given:
            raise LocalProtocolError("The secrets of this slot were used, or are not here (O6).")
        secrets, plus = self._pair.pop(slot), [self_key(self._b.pop(slot), label)]
        reached = self._reached(members)
        plus += [pair_key(secrets[peer], label) for peer in reached if self._name < peer]
        return plus, [pair_key(secrets[peer], label) for peer in reached if self._name >= peer]

    def gave(self, slot: Slot, members: Sequence[str]) -> bool:
        """Tell whether a share of any of these clients was given in this slot."""
        return not as_set(tuple(members)).isdisjoint(self._given.get(slot, set()))

    def give(self, slot: Slot, members: Sequence[str], survivors: Sequence[str]) -> Vector:
        """Return this holder's shares for one sum, shape (width + 1, 32); each share once.

        Args:
            slot: whose sum is being opened.
            members: who was asked.
            survivors: whose uploads are there.

        Raises:
            LocalProtocolError: shares of this slot were given before.
        """
        asked, there = as_set(tuple(members)), as_set(tuple(survivors))
        owners = [owner for owner in self.group.holders(self._name) if owner in asked]
        given = self._given.get(slot, frozenset())
        if slot not in self._held or not given.isdisjoint(owners):
            raise LocalProtocolError("Shares of this slot were given before (O7).")
        self._given[slot] = given.union(owners)
        held, rows = bytearray(self._held[slot]), list[bytes | bytearray]()
        for place, owner in enumerate(self.group.holders(self._name)):
            if owner not in asked:
                rows.append(NOTHING)
                continue
            start = place * _SHARES_BYTES
            shares = held[start : start + _SHARES_BYTES]
            rows.append(shares[:SEED_BYTES] if owner in there else shares[SEED_BYTES:])
            held[start : start + _SHARES_BYTES] = _FORGOTTEN  # the other one is forgotten
        self._held[slot] = bytes(held)
        rows += [NOTHING] * (self._width + 1 - len(rows))
        return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, SEED_BYTES)
