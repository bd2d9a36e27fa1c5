"""Keys of masks and of locked rows, each derived from a seed that clients share (ADR 0007)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from crypto.aead import OVERHEAD as ROW_OVERHEAD
from crypto.aead import lock
from crypto.errors import CryptoError
from crypto.hpke import SEAL_OVERHEAD
from crypto.samplers import Mute, derive, entropy
from crypto.sharing import new_seed, split
from crypto.signing import SIGNATURE_BYTES, canonical
from protocols.errors import BadEnvelope, CohortTooSmall, LocalProtocolError, UnfitMessage
from protocols.keys.groups import Group, Slot, agreement
from protocols.messages import Message, SealedMessage, Vector
from protocols.wire.codec import WIRE_DTYPE, bundle_bytes, decode, encode
from protocols.wire.control import CONTROL
from protocols.wire.roster import Identity, Party, Roster, as_set, shared, within

SEED_BYTES = 32
NOTHING = bytes(SEED_BYTES)


def cuts(joined: bytes) -> list[bytes]:
    """Return the seeds or secrets that were joined, 32 bytes each."""
    return [joined[at : at + SEED_BYTES] for at in range(0, len(joined), SEED_BYTES)]


def row_bytes(degree: int) -> int:
    """Return the size of one locked row."""
    return degree * SEED_BYTES + ROW_OVERHEAD


def row_info(run: str, epoch: int, name: str, slot: Slot) -> bytes:
    """Return what a locked row is bound to."""
    return b"secure-fgl/row\0" + canonical([run, epoch, name, slot.label])


def row_key(seed: bytes) -> bytes:
    """Return the key that locks a row, from the shared seed e."""
    return derive(seed, "row")


def locked_row(
    place: tuple[str, int, str], slot: Slot, seed: bytes, secrets: Sequence[bytes], width: int
) -> bytes:
    """Return one slot's pair secrets of a client, locked under the seed that its holders share.

    Args:
        place: run, epoch, and name of the client.
        slot: whose secrets.
        seed: e.
        secrets: by neighbour, `NOTHING` of who is away.
        width: neighbours for which a row has room.
    """
    padded = b"".join(secrets).ljust(width * SEED_BYTES, b"\0")
    return lock(row_key(seed), row_info(*place, slot), padded)


def self_key(seed: bytes, label: Sequence[str]) -> bytes:
    """Return the key of a self-mask for one vector, from the shared seed b (O6)."""
    return derive(seed, "self-mask", *label)


def pair_key(secret: bytes, label: Sequence[str]) -> bytes:
    """Return the key of a pair's mask for one vector, from the pair's secret of a slot (O6)."""
    return derive(secret, "pair-mask", *label)


# --- Rows that one client seals for another; the aggregator relays them and learns their size ---
#
# A box is HPKE over (signature | row). HPKE's base mode does not say who sealed, so the sender
# signs the row together with the info that names run, exchange, item, sender and addressee; a relay
# can neither read, exchange, replay nor forge a box.


def by_peers(kind: type[Message]) -> bool:
    """Tell whether rows of this message type are sealed by clients for clients."""
    return issubclass(kind, SealedMessage) and kind not in CONTROL


BOX_OVERHEAD = SIGNATURE_BYTES + SEAL_OVERHEAD
"""How many bytes a box is longer than its content."""


def close_box(content: bytes, me: Identity, addressee: Party, info: bytes) -> bytes:
    """Sign and seal content for one party."""
    return addressee.seal.seal(info, me.signing.sign("box", info + content) + content)


def open_box(box: bytes, me: Identity, sender: Party, info: bytes) -> bytes:
    """Return the content of a box.

    Raises:
        BadEnvelope: it does not open, or `sender` did not sign it.
    """
    try:
        opened = me.opening.open(info, box)
        signature, content = opened[:SIGNATURE_BYTES], opened[SIGNATURE_BYTES:]
        sender.verify.verify("box", signature, info + content)
    except CryptoError as error:
        raise BadEnvelope(
            "A box is not from the client it should be from.",
            why=f"{sender.name} sealed something else, or the relay exchanged it",
        ) from error
    return content


def box_bytes(kind: type[Message], dims: Mapping[str, int]) -> int:
    """Return the size of the one box that holds one row of a message."""
    return bundle_bytes((kind,), {**dims, "cohort": 1}) + BOX_OVERHEAD


def _info(run: str, exchange: int, item: str, sender: str, addressee: str) -> bytes:
    return b"secure-fgl/box\0" + canonical([run, exchange, item, sender, addressee])


def close_boxes(
    message: Message,
    me: Identity,
    roster: Roster,
    dims: Mapping[str, int],
    where: tuple[str, int, str],
) -> bytes:
    """Seal row j of every field to roster client j.

    Args:
        message: every field has the first dimension ``cohort``.
        me: the sender, who signs.
        roster: whose sorted clients are the rows.
        dims: sizes of named dimensions.
        where: run, exchange and item, bound into every box.

    Raises:
        UnfitMessage: a field without one row per client.
    """
    one, boxes = {**dims, "cohort": 1}, []
    for field in message.fields:
        shape = np.asarray(getattr(message, field.name)).shape
        if not field.shape or field.shape[0] != "cohort" or shape[:1] != (dims["cohort"],):
            raise UnfitMessage(
                f"{type(message).__name__}.{field.name} needs one row per client "
                "(first dimension 'cohort')."
            )
    for row, name in enumerate(roster.clients):
        values = {f.name: np.asarray(getattr(message, f.name))[[row]] for f in message.fields}
        content = encode([type(message)(**values)], one)
        info = _info(*where, me.party.name, name)
        boxes.append(close_box(content, me, roster.party(name), info))
    return b"".join(boxes)


def open_boxes(
    kind: type[Message],
    boxes: bytes,
    senders: tuple[str, ...],
    me: Identity,
    roster: Roster,
    dims: Mapping[str, int],
    where: tuple[str, int, str],
) -> Message:
    """Open one box per roster client; rows of clients outside `senders` are zero.

    Raises:
        BadEnvelope: a box of a sender does not open, or is not signed by that sender.
    """
    one, size = {**dims, "cohort": 1}, box_bytes(kind, dims)
    if len(boxes) != size * len(roster.clients):
        raise BadEnvelope("The relay handed on the wrong number of boxes.")
    rows: list[Message | None] = []
    for index, sender in enumerate(roster.clients):
        if sender not in senders:
            rows.append(None)
            continue
        info = _info(*where, sender, me.party.name)
        box = boxes[index * size : (index + 1) * size]
        content = open_box(box, me, roster.party(sender), info)
        rows.append(decode((kind,), content, one)[0])
    values = {}
    for field in kind.fields:
        empty = np.zeros(field.sizes(one), dtype=WIRE_DTYPE[field.wire])
        parts = [empty if row is None else getattr(row, field.name) for row in rows]
        values[field.name] = np.concatenate(parts)
    return kind(**values)


# --- The key that all clients of a run hold and nobody else: what checks of sums are made with ---
#
# In the first epoch every client draws a part and sends it to every other one, in the boxes in
# which pair secrets travel; the key is derived from all of them. Later a client that holds the key
# sends the key itself, so that one which was away learns it. It is taken as told by more clients
# than the policy assumes to collude, who could tell another one.
#
# A client can hand the key to the aggregator, which may then change totals unnoticed. Such a client
# could as well send what shifts the total by as much: no protocol here proves what a client sends.
# Clients that tell others different parts make totals fail their checks, which ends the run.

_BYTES: Final = 32
_DRAWN, _KEY = b"\0", b"\1"
PART_BYTES: Final = 1 + _BYTES
"""Of what one client sends each other one."""


class CommonKey(Mute):
    """What one client holds of the key.

    Args:
        drawn: this client's own part.
        key: the key; empty until it is agreed on.
    """

    def __init__(self, drawn: bytes = b"", key: bytes = b"") -> None:
        self._drawn, self.key = drawn or entropy(_BYTES), key

    def kept(self) -> tuple[bytes, bytes]:
        """Return what this is made of again, for a locked state."""
        return self._drawn, self.key

    @property
    def part(self) -> bytes:
        """What this client sends every other one, `PART_BYTES` long."""
        return _KEY + self.key if self.key else _DRAWN + self._drawn

    def agree(self, name: str, run: str, parts: Mapping[str, bytes], colluders: int) -> None:
        """Take the key from what all others sent; a key that is here already stays.

        Args:
            name: of this client.
            run: the run's name.
            parts: by client, what it sent.
            colluders: how many clients may work together, by the policy.

        Raises:
            BadEnvelope: they do not tell one key.
        """
        if self.key:
            return
        told = Counter(part[1:] for part in parts.values() if part[:1] == _KEY)
        if told:
            known = [key for key, clients in told.items() if clients > colluders]
            if len(known) != 1:
                raise BadEnvelope(
                    "The others do not tell one key of checks.",
                    why="a client tells a false one, or too few were there in an earlier epoch",
                    fix="start the run again when all clients are there",
                )
            self.key = known[0]
            return
        drawn: dict[str, Any] = {peer: part[1:] for peer, part in parts.items()}
        drawn[name] = self._drawn
        joined = b"".join(drawn[peer] for peer in sorted(drawn))
        self.key = derive(joined, "common", run, *sorted(drawn))


# --- Slots with pair secrets alone, for sums that one client reads over its neighbours (ADR 0053)
# ---
#
# No seed of such a slot is drawn, shared or locked. So nobody can take its masks off but by adding
# up what all members of a group sent, and what lacks one of them stays as it is.

Kept = dict[str, dict[str, bytes]]


class PairSlots(Mute):
    """One client's pair secrets of such slots in one epoch; each slot is used once.

    Args:
        name: of this client.
        slots: of the epoch.
    """

    def __init__(self, name: str, slots: Sequence[Slot]) -> None:
        self._name = name
        self._secrets: dict[Slot, dict[str, bytes]] = {slot: {} for slot in slots}

    def kept(self) -> Kept:
        """Return the secrets of slots that were not used, for a locked state."""
        return {slot.label: dict(secrets) for slot, secrets in self._secrets.items()}

    @classmethod
    def of_kept(cls, name: str, kept: Kept) -> PairSlots:
        """Return what `kept` was taken from."""
        made = cls(name, ())
        made._secrets = {Slot.of_label(label): dict(found) for label, found in kept.items()}
        return made

    def fill(self, secrets: Mapping[str, bytes]) -> None:
        """Take the epoch's secrets, by peer."""
        for slot in self._secrets:
            self._secrets[slot] = {p: derive(s, "slot", slot.label) for p, s in secrets.items()}

    def paired(self, slot: Slot, members: Sequence[str]) -> bool:
        """Tell whether this client shares a secret of a slot with all of these, itself aside."""
        return set(members) - {self._name} <= self._secrets.get(slot, {}).keys()

    def keys(
        self, slot: Slot, groups: Mapping[str, Sequence[str]], label: Sequence[str]
    ) -> dict[str, tuple[list[bytes], list[bytes]]]:
        """Return the keys of masks that cancel within each of several groups that overlap.

        Each group has keys of its own, from the pairs' secrets of one slot, which are forgotten
        with it: a slot serves one vector a group (O6).

        Args:
            slot: of this epoch.
            groups: by what tells them apart (who reads the sum), their members, this client one.
            label: what every mask is bound to besides.

        Returns:
            By group, the keys of what this client adds and of what it takes away.

        Raises:
            LocalProtocolError: the slot was used before, or is not of this epoch, or a member
                shares no secret with this client.
        """
        if slot not in self._secrets:
            raise LocalProtocolError("The secrets of this slot were used, or are not here (O6).")
        if not all(self.paired(slot, members) for members in groups.values()):
            raise LocalProtocolError("A neighbour shares no secret with this client.")
        secrets, found = self._secrets.pop(slot), {}
        for group, members in groups.items():
            keys = {p: pair_key(secrets[p], (*label, group)) for p in members if p != self._name}
            plus = [key for peer, key in keys.items() if self._name < peer]
            found[group] = plus, [key for peer, key in keys.items() if self._name > peer]
        return found


# --- What one client agrees on with its neighbours for one epoch, and what it gives back of it ---
#
# Bonawitz et al. (CCS 2017) with secrets per slot, so that pairs may be agreed on once per epoch
# (ADR 0007). Each pair of neighbours has a secret of two halves, each half sealed to the other with
# HPKE (X25519 and ML-KEM-768 together, O31). From it every slot has a secret of its own. For every
# slot a client also draws two seeds and shares them, t of n, among its neighbours and itself (O7):
#
#     b   the key of its self-mask; rebuilt if its upload is there
#     e   locks its row: its pairs' secrets of that slot; rebuilt if it vanished
#
# A holder gives one of the two shares, never both and never again. What becomes known of one slot
# says nothing about another.
#
# Where all are neighbours, a box also brings what the key of checks is made of (`keys.common`).

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
