"""Masked vectors: whether they are uniform, and how the masks of who vanished are taken off."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.aead import unlock
from crypto.errors import CryptoError
from crypto.sharing import combine
from protocols.disclosures.sum.layout import Ring, Words
from protocols.errors import BadEnvelope, LocalProtocolError, RoundLost, WrongStage
from protocols.keys.groups import Group, Slot
from protocols.keys.pairs import (
    NOTHING,
    SEED_BYTES,
    pair_key,
    row_bytes,
    row_info,
    row_key,
    self_key,
)
from protocols.messages import Vector
from protocols.wire.roster import as_set

# Does what should be masked look masked? Residues that are not uniform are refused.
#
# Whoever puts masks on, takes them off, receives or audits a masked vector looks at it, with numpy
# alone and whatever `crypto.masks` says: masks that a fault or a stranger's code left out or made
# of zeros, constants or few bits are found by what they leave. Totals would not tell, since masks
# that are zero come off as well as others.
#
# Every test counts events of which the chance under uniform residues is known, and bounds the
# chance of so many by Chernoff: of n coordinates each of which is hit with chance p, k > np are
# with a chance of at most 2^-(n KL(k/n ‖ p)), KL in bits (Arratia and Gordon, Bull. Math. Biol. 51,
# 1989, theorem 1). It refuses where that is below 2^-72. There are fewer than 2^12 such counts in
# one look, so a good mask is refused with a chance below 2^-60, at any length. Where even n of n
# would be no such event (fewer than 72/log2(1/p) coordinates) nothing is said: of residues mod 2^32
# that is one or two unchanged coordinates, and four of 16-bit values that stand bare.
#
# **What this is not.** Masks that somebody knows (a fixed key, a generator with a back door) look
# uniform. So do masks that are used twice.

_LIMIT = 72.0  # bits; 60, and 12 for the number of counts
_SAMPLE = 8192  # residues, evenly spaced, whose bytes and bits are counted
_ONES = ((np.arange(256)[:, None] >> np.arange(8)) & 1) * 1.0  # bits of every byte, (256, 8)


def check_mask(bare: Words, masked: Words, modulus: int) -> None:
    """Raise LocalProtocolError unless masks lie between two vectors.

    Args:
        bare: shape (n,), residues without the masks.
        masked: shape (n,), the same residues with them.
        modulus: of both.
    """
    if why := strange_mask(bare, masked, modulus):
        raise LocalProtocolError(
            f"Masks that should be uniform are not: {why}. Nothing more is sent or opened.",
            why="the code that makes them is damaged, or is not Secure-FGL's own",
            fix="install Secure-FGL again, into a virtual environment of its own; take what was "
            "sent in this run for sent in clear",
        )


def check_masked(words: Words, ring: Ring) -> None:
    """Raise BadEnvelope unless a client's vector, shape (ring.size,), can be a masked one."""
    if why := strange_masked(words, ring):
        raise BadEnvelope(
            f"An upload that should be masked is not: {why}.",
            why="the client's installation is damaged or not Secure-FGL's own, or it means to",
            fix="take what this client sent for sent in clear, and have its installation looked at",
        )


def strange_mask(bare: Words, masked: Words, modulus: int) -> str:
    """Say what is wrong with the difference of two vectors; nothing if it may be uniform."""
    same = int(np.count_nonzero(bare == masked))
    if _surprise(same, masked.size, 1 / modulus) > _LIMIT:
        return f"{same} of {masked.size} coordinates are as they were"
    after = _some(masked)  # the other coordinates of the difference are not looked at
    before = _some(bare).astype(after.dtype, copy=False)
    mask = after - before  # wraps
    if modulus < 1 << (8 * mask.itemsize):
        mask[after < before] += mask.dtype.type(modulus)
    return _uneven(mask, modulus)


def strange_masked(words: Words, ring: Ring) -> str:
    """Say what is wrong with a masked vector; nothing if it may be uniform."""
    if ring.packing is None:
        # What one client's integers would be without a mask.
        plain = (1 << ring.bits) + 2 * ring.margin
        lifted = words + words.dtype.type(ring.margin % ring.modulus)  # wraps, as it should
        if plain < ring.modulus:
            bare = int(np.count_nonzero(lifted < words.dtype.type(plain)))
            if _surprise(bare, words.size, plain / ring.modulus) > _LIMIT:
                return f"{bare} of {words.size} coordinates stand bare"
    return _uneven(words, ring.modulus)


def _some(words: Words) -> Words:
    """Return at most `_SAMPLE` of these, evenly spaced."""
    return words[:: -(-words.size // _SAMPLE) or 1]


def _uneven(words: Words, modulus: int) -> str:
    """Say if some byte, or bit, of uniform residues would not be so frequent."""
    some = np.ascontiguousarray(_some(words))
    if not some.size:
        return ""
    width = some.itemsize
    rows: NDArray[Any] = some.astype(some.dtype.newbyteorder("<"), copy=False).view(np.uint8)
    columns = rows.reshape(-1, width).T
    counts = np.stack([np.bincount(column, minlength=256) for column in columns])
    ones = (counts @ _ONES).astype(np.int64)  # of every bit
    bytes_, bits = counts.max(axis=1), np.maximum(ones, some.size - ones).ravel()
    for most, limits, what in zip(
        (bytes_, bits), _limits(some.size, width, modulus), ("byte", "bit"), strict=True
    ):
        for which in np.flatnonzero(most >= limits):
            return f"{most[which]} of {some.size} coordinates have the same {what} {which}"
    return ""


@lru_cache(maxsize=64)  # the vectors of a run are of few lengths and moduli
def _limits(size: int, width: int, modulus: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return from how many on of `size` residues too many agree in a byte, and in a bit."""
    return tuple(
        np.array([_too_many(size, _share(low, bits, modulus)) for low in range(0, 8 * width, bits)])
        for bits in (8, 1)
    )  # type: ignore[return-value]


def _too_many(size: int, share: float) -> int:
    """Return the fewest of `size` hits that are refused; more than all of them: none is."""
    few, many = math.floor(size * share), size + 1  # more hits are never less surprising
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if _surprise(middle, size, share) > _LIMIT else (middle, many)
    return many


def _share(low: int, width: int, modulus: int) -> float:
    """Return the largest share of the residues that agree in `width` bits from bit `low` on."""
    return min(1.0, (1 << low) * -(-modulus // (1 << (low + width))) / modulus)


def _surprise(hits: int, size: int, share: float) -> float:
    """Return -log2 of a bound on the chance of so many hits or more; 0 where none is surprising."""
    if share >= 1.0 or hits <= size * share:
        return 0.0
    part = hits / size
    rest = (1 - part) * math.log2((1 - part) / (1 - share)) if hits < size else 0.0
    return size * (part * math.log2(part / share) + rest)


# Taking the masks off a sum: which of them are still on it, and the seeds they grow from.
#
# Of every survivor the self-mask is on the sum. Of every client that vanished, the masks of its
# pairs with survivors are. The holders' shares rebuild, per client, one seed: b of a survivor, or e
# of one that vanished, which opens the row with its pairs' secrets of this slot
# (protocols.keys.pairs).

Keys = tuple[list[bytes], list[bytes]]
"""Keys of masks to add, and of masks to take away."""


class Unmasking:
    """Collects shares for one sum.

    Args:
        group: of the epoch.
        slot: of the sum.
        members: who was asked.
        survivors: whose uploads are summed.
        label: what every mask key of this sum is bound to (O6).
        vote_text: what a vote for these survivors signs.
    """

    def __init__(
        self,
        group: Group,
        slot: Slot,
        members: Sequence[str],
        survivors: Sequence[str],
        label: Sequence[str],
        vote_text: bytes,
    ) -> None:
        self.vote_text = vote_text
        self.group, self.slot, self.survivors = group, slot, tuple(survivors)
        self._members, self._label = tuple(members), tuple(label)
        self._shares: dict[str, dict[str, bytes]] = {name: {} for name in self._members}
        self._received: set[str] = set()
        self._votes: dict[str, bytes] = {}

    def vote(self, holder: str, signature: bytes) -> None:
        """Take one holder's vote for the survivor list; raises WrongStage for a second one."""
        if holder in self._votes:
            raise WrongStage("A holder voted twice.")
        self._votes[holder] = signature

    def votes(self) -> dict[str, bytes]:
        """Return all votes by holder.

        Raises:
            RoundLost: of some client's holders fewer than the group's quorum.
        """
        if (fewest := self.group.fewest(self._votes)) < self.group.quorum:
            raise RoundLost(
                f"Only {fewest} holders of one client's shares confirmed the survivor list; "
                f"{self.group.quorum} are needed. The round is skipped.",
                why="too many clients vanished while a sum was being opened",
                fix="this was not opened; the next round goes on with who is there",
            )
        return dict(self._votes)

    def add(self, holder: str, shares: Vector) -> None:
        """Take one holder's shares, shape (width + 1, 32).

        Raises:
            WrongStage: this holder's shares are here.
        """
        if holder in self._received:
            raise WrongStage("A holder's shares came twice.")
        self._received.add(holder)
        rows = shares.tobytes()
        for row, owner in enumerate(self.group.holders(holder)):
            share = rows[row * SEED_BYTES : (row + 1) * SEED_BYTES]
            if owner in self._shares and share != NOTHING:
                self._shares[owner][holder] = share

    def keys(self, rows: Mapping[str, bytes], width: int) -> Keys:
        """Return the keys that take every mask off the survivors' sum.

        Args:
            rows: every client's locked rows of this slot.
            width: neighbours for which a row has room.

        Raises:
            RoundLost: too few holders answered, or shares that do not belong together.
        """
        seeds = self._seeds()
        plus: list[bytes] = []
        there = as_set(self.survivors)
        minus = [self_key(seeds[name], self._label) for name in self.survivors]
        for name in self._members:
            if name in there:
                continue
            secrets = self._row(name, seeds[name], rows, width)
            for peer, secret in secrets.items():
                if peer in there and secret != NOTHING:
                    # The survivor added this mask if its name comes first.
                    side = minus if peer < name else plus
                    side.append(pair_key(secret, self._label))
        return plus, minus

    def _seeds(self) -> dict[str, bytes]:
        """Rebuild one seed per member; members with the same holders are rebuilt together."""
        alike: dict[tuple[int, ...], dict[str, dict[int, bytes]]] = {}
        for name, shares in self._shares.items():
            if len(shares) < self.group.threshold:
                raise RoundLost(
                    f"Only {len(shares)} holders gave a share of one client's seed; "
                    f"{self.group.threshold} are needed. The round is skipped.",
                    why="too many clients vanished before they gave their shares",
                    fix="this was not opened; the next round goes on with who is there",
                )
            holders = enumerate(self.group.holders(name))
            there = {place: shares[holder] for place, holder in holders if holder in shares}
            alike.setdefault(tuple(there), {})[name] = there
        found: dict[str, bytes] = {}
        for places, owners in alike.items():
            table = {place: [given[place] for given in owners.values()] for place in places}
            try:
                seeds = combine(table, self.group.threshold)
            except CryptoError as error:
                raise RoundLost("Shares of a seed do not belong together.") from error
            found.update(zip(owners, seeds, strict=True))
        return found

    def _row(
        self, name: str, seed: bytes, rows: Mapping[str, bytes], width: int
    ) -> dict[str, bytes]:
        try:
            info = row_info(self.group.run, self.group.epoch, name, self.slot)
            row = unlock(row_key(seed), info, rows[name])
        except (CryptoError, KeyError) as error:
            raise RoundLost("The row of a client that vanished does not open.") from error
        neighbours = self.group.neighbours(name)
        cuts = (row[k * SEED_BYTES : (k + 1) * SEED_BYTES] for k in range(len(neighbours)))
        return dict(zip(neighbours, cuts, strict=True))


def row_of(rows: bytes, place: int, width: int) -> bytes:
    """Return the locked row of one slot; raises BadEnvelope if there is none."""
    size = row_bytes(width)
    row = rows[place * size : (place + 1) * size]
    if len(row) != size:
        raise BadEnvelope("A client's rows are cut short.")
    return row
