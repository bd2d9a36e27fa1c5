"""What a cell adds up to: shared among its members, opened under a blind, read by clients only.

Every member splits its integers into additive shares mod 2^32, one for each member, so that all
but one of them together learn no more than the total. Each adds the shares that it holds and puts a
blind on it that follows from the group's key; the aggregator adds those of a cell and hands the
blinded totals to all clients (O25). There is no total of some of a cell: a member that vanishes
costs its cell.

No blind is used by two cells, whatever their members were told of numbers and places: a random
nonce goes along with every member's shares, and blinds are bound to the hash of all of them, the
cell's label. It tells nothing, and travels beside the sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crypto.samplers import Stream, derive, entropy
from crypto.signing.canonical import canonical
from protocols.disclosures.match.protocol.cells import Told
from protocols.errors import BadEnvelope, LocalProtocolError, RoundLost, UnfitMessage

__all__ = [
    "LABEL_BYTES",
    "NONCE_BYTES",
    "CellPlace",
    "blinded",
    "cell_digest",
    "cell_label",
    "context",
    "opened",
    "partial",
    "shares",
    "total",
]

LABEL_BYTES = NONCE_BYTES = 32

Words = NDArray[np.uint32]
_WORD = np.dtype("<u4")
_HALF = 1 << 31


@dataclass(frozen=True)
class CellPlace:
    """Where a sum belongs; every blind and every box is bound to it.

    `given` is the digest of what the client was handed: values may follow from it, so those of
    members that were handed different models add up to nothing (O8).
    """

    run: str
    exchange: int
    cell: int
    members: tuple[str, ...]
    given: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """As texts for deriving keys."""
        return (self.run, f"{self.exchange}", f"{self.cell}", cell_digest(self))


def cell_digest(place: CellPlace) -> str:
    """Return the digest of a cell's exact members in one exchange of a run.

    Boxes of shares are sealed under it. A matcher that tells members of a cell different things
    gets boxes that do not open, and no total.
    """
    facts = [place.run, place.exchange, place.cell, list(place.members), place.given]
    content = canonical(facts)
    return hashlib.sha256(b"secure-fgl/cell\0" + content).hexdigest()


def cell_label(nonces: Mapping[str, bytes], place: CellPlace) -> bytes:
    """Return a cell's label, LABEL_BYTES: what its blinds are bound to, and who adds it up knows.

    Nobody outside the cell can guess it, and as long as one member is honest nobody can have two
    cells with one label.

    Args:
        nonces: by member, what came along with its share.
        place: of the cell.

    Raises:
        BadEnvelope: not one nonce of each member.
    """
    if set(nonces) != set(place.members) or {len(n) for n in nonces.values()} != {NONCE_BYTES}:
        raise BadEnvelope("A cell's label takes one nonce of each member (O25).")
    content = canonical([cell_digest(place), *(nonces[name].hex() for name in place.members)])
    return hashlib.sha256(b"secure-fgl/cell label\0" + content).digest()


def shares(values: NDArray[np.int64], members: Sequence[str]) -> dict[str, bytes]:
    """Split integers into one additive share per member; any but all of them are uniform.

    Args:
        values: (d,), each in [-2^31, 2^31).
        members: of the cell, this client among them.

    Returns:
        By member, 4 d bytes (little-endian words).

    Raises:
        UnfitMessage: a value does not fit.
    """
    if values.ndim != 1 or values.dtype != np.int64 or not values.size:
        raise UnfitMessage("A cell adds up one vector of integers.")
    if int(values.max()) >= _HALF or int(values.min()) < -_HALF:
        raise UnfitMessage("An integer does not fit into a share of 32 bits.")
    rest = values.astype(np.uint32)
    found: dict[str, bytes] = {}
    for member in members[1:]:
        share = np.frombuffer(entropy(4 * values.size), dtype=_WORD)
        rest = rest - share
        found[member] = share.tobytes()
    return {members[0]: rest.astype(_WORD).tobytes(), **found}


def partial(held: Mapping[str, bytes], place: CellPlace, size: int) -> Words:
    """Add the shares that one member holds, (size,); on its own this is uniform.

    Raises:
        RoundLost: a member's share is missing: there is no total of fewer.
        BadEnvelope: a share is from a stranger or of another size.
    """
    if strangers := set(held) - set(place.members):
        raise BadEnvelope(f"{len(strangers)} shares are from outside the cell (O25).")
    if missing := [member for member in place.members if member not in held]:
        raise RoundLost(
            f"{len(missing)} of {len(place.members)} members of a cell sent no share.",
            why="a member vanished; a total of the others would tell on it later",
            fix="nothing was opened; the round goes on without this cell",
        )
    if any(len(share) != 4 * size for share in held.values()):
        raise BadEnvelope("A share does not have the planned size.")
    total = np.zeros(size, dtype=np.uint32)
    for share in held.values():
        total += np.frombuffer(share, dtype=_WORD)
    return total


def blinded(words: Words, group: bytes, place: CellPlace, label: bytes, me: str) -> bytes:
    """Add this member's blind to its sum of shares; the aggregator gets that, and the label.

    Raises:
        LocalProtocolError: this client is not in the cell.
    """
    if me not in place.members:
        raise LocalProtocolError("A client adds only for its own cell.")
    at = place.members.index(me)
    return (words + _blind(group, (place.run, place.exchange), label, at, words.size)).tobytes()


def _blind(group: bytes, where: tuple[str, int], label: bytes, at: int, size: int) -> Words:
    """Return one member's blind, by its place in the cell: who stands there others do not know."""
    run, exchange = where
    key = derive(group, "cell", run, f"{exchange}", label.hex(), f"{at}")
    return np.frombuffer(Stream(key).bytes(4 * size), dtype=_WORD).astype(np.uint32)


def total(parts: Sequence[tuple[bytes, bytes]], count: int, size: int) -> tuple[bytes, Words]:
    """Add a cell's blinded sums at the aggregator; they are uniform to everybody but clients.

    Args:
        parts: each member's label of the cell, and its sum.
        count: how many members there are.
        size: of a sum, in words.

    Returns:
        The label, and the total, (size,).

    Raises:
        RoundLost: one of `count` is missing, or they do not have one label.
        BadEnvelope: one has another size.
    """
    if len(parts) != count:
        raise RoundLost(f"Only {len(parts)} of {count} members of a cell sent their sum.")
    if any(len(label) != LABEL_BYTES or len(words) != 4 * size for label, words in parts):
        raise BadEnvelope("A member's sum does not have the planned size.")
    if len(labels := {label for label, _ in parts}) != 1:
        raise RoundLost(
            "Members of one cell have different labels for it.",
            why="a member sent others different nonces",
            fix="nothing was opened; the round goes on without this cell",
        )
    found = np.zeros(size, dtype=np.uint32)
    for _, words in parts:
        found += np.frombuffer(words, dtype=_WORD)
    return labels.pop(), found


def opened(
    totals: Words,
    there: NDArray[np.bool_],
    labels: Sequence[bytes],
    told: Told,
    group: bytes,
    where: tuple[str, int],
    levels: int,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Take the blinds off all cells' totals, at a client.

    Args:
        totals: (cells, d) as the aggregator added them.
        there: (cells,) which of them are complete.
        labels: of the cells; with another one than the members had, a total stays uniform.
        told: of the matcher; says how many stand in each cell.
        group: the group's key.
        where: run and exchange.
        levels: the largest integer that one client may give.

    Returns:
        Means in grid steps, (cells, d), 0 where there is none; and which are usable. A total that
        its members cannot have is not: somebody altered it.
    """
    cells, size = totals.shape
    if there.shape != (cells,) or len(told.sizes) != cells or len(labels) != cells:
        raise BadEnvelope("The totals are not those of this run's cells.")
    if int(told.sizes.max()) * levels >= _HALF:
        raise UnfitMessage("The total of a cell does not fit into 32 bits.")
    means, usable = np.zeros((cells, size)), there.copy()
    for cell in np.flatnonzero(there):
        count = int(told.sizes[cell])
        words = totals[cell].astype(np.uint32)
        for at in range(count):
            words = words - _blind(group, where, labels[int(cell)], at, size)
        integers = words.view(np.int32).astype(np.int64)
        usable[cell] = int(np.abs(integers).max()) <= count * levels
        if usable[cell]:
            means[cell] = integers / count
    return means, usable


def context(
    rows: NDArray[np.bool_], means: NDArray[np.float64], usable: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return, per row, the mean over the usable cells that hold its item, (rows, d); 0 for none."""
    weights = (rows & usable).astype(np.float64)
    counts = np.maximum(weights.sum(axis=1, keepdims=True), 1.0)
    found: NDArray[np.float64] = (weights / counts) @ means
    return found
