"""Taking the masks off a sum: which of them are still on it, and the seeds they grow from.

Of every survivor the self-mask is on the sum. Of every client that vanished, the masks of its pairs
with survivors are. The holders' shares rebuild, per client, one seed: b of a survivor, or e of one
that vanished, which opens the row with its pairs' secrets of this slot (protocols.keys.pairs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crypto.aead import unlock
from crypto.errors import CryptoError
from crypto.sharing import combine
from protocols.errors import BadEnvelope, RoundLost, WrongStage
from protocols.keys.groups import Group
from protocols.keys.seeds import (
    NOTHING,
    SEED_BYTES,
    pair_key,
    row_bytes,
    row_info,
    row_key,
    self_key,
)
from protocols.keys.slots import Slot
from protocols.messages import Vector
from protocols.wire.cohorts import as_set

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
