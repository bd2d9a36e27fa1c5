"""Cells of equal tags: who stands in one, their neighbours, and the sums of their members."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from crypto.aead import OVERHEAD, lock, unlock
from crypto.errors import CryptoError
from crypto.samplers import Stream, derive, entropy
from crypto.signing import canonical
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.tagging import DIGEST_BYTES, TAG_BYTES, Bytes, Tags
from protocols.errors import (
    BadEnvelope,
    CohortTooSmall,
    LocalProtocolError,
    RoundLost,
    UnfitMessage,
)

# The matcher's work: which tags are equal, who stands in one cell, and which cells hold a tag.
#
# The matcher sees tags. Cells are disjoint, of clients who share tags, and every client is in
# exactly one of them (O25): sums over cells are all that is ever opened of what clients carry, and
# their rank is the number of cells. Means per item instead would single out every client.

if TYPE_CHECKING:
    from scipy.sparse import csr_array


Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Told:
    """What the matcher tells one client.

    Attributes:
        digest: of the canary that all clients have.
        cell: number of the client's own cell.
        members: who stands in it, sorted, the client among them.
        sizes: (cells,), how many stand in each cell; the same for all clients.
        bits: (cap, ceil(cells / 8)), bit c of row j: cell c holds the j-th tag that was sent.
    """

    digest: bytes = field(repr=False)
    cell: int = field(repr=False)
    members: tuple[str, ...] = field(repr=False)
    sizes: Numbers = field(repr=False)
    bits: Bytes = field(repr=False)

    @property
    def rows(self) -> NDArray[np.bool_]:
        """The bits as (cap, cells)."""
        return np.unpackbits(self.bits, axis=1, count=len(self.sizes)).astype(bool)


@dataclass(frozen=True)
class Matched:
    """Everything the matcher found in one epoch; `cells` holds every client's cell number."""

    cells: Mapping[str, int] = field(repr=False)
    told: Mapping[str, Told] = field(repr=False)


def same_canary(digests: Mapping[str, bytes]) -> bytes:
    """Return the digest that all clients sent.

    Raises:
        BadEnvelope: they differ: a tag server used another key for somebody. Names those beside the
            most frequent one.
    """
    values = list(digests.values())
    common = max(sorted(set(values)), key=values.count)
    if others := sorted(n for n, d in digests.items() if not hmac.compare_digest(d, common)):
        raise BadEnvelope(
            f"The canary of {len(others)} clients differs ({', '.join(others[:5])}) (O24).",
            why="a tag server used another key for them, or they asked in another run or epoch",
            fix="stop the run; compare both tag servers' ledgers for these clients",
        )
    return common


def incidence(tags: Mapping[str, Bytes], cap: int) -> csr_array:
    """Return who holds which tag, (clients, tags) of 0 and 1; a row's entries in the order sent.

    Raises:
        UnfitMessage: tags of another size.
        BadEnvelope: they are not sorted, or one stands twice.
    """
    from scipy.sparse import csr_array

    for sent in tags.values():
        if sent.shape != (cap, TAG_BYTES) or sent.dtype != np.uint8:
            raise UnfitMessage("A client's tags do not have the planned size.")
        rows = [row.tobytes() for row in sent]
        if any(one >= other for one, other in pairwise(rows)):
            raise BadEnvelope("A client's tags are not sorted, or one stands twice.")
    whole = np.ascontiguousarray(np.concatenate(list(tags.values())))
    _, numbers = np.unique(whole.view(f"V{TAG_BYTES}").ravel(), return_inverse=True)
    starts = np.arange(0, cap * len(tags) + 1, cap)
    shape = (len(tags), int(numbers.max()) + 1)
    return csr_array((np.ones(len(numbers), np.float32), numbers, starts), shape=shape)


def partition(held: csr_array, cell: int) -> Numbers:
    """Return every client's cell number, (clients,): disjoint cells of at least `cell`.

    The client with the fewest shared tags is first to choose, and takes those whose tags are most
    like its own (cosine). Whoever is left over joins the cell it shares most with, one a cell while
    that is possible.

    Args:
        held: (clients, tags) of 0 and 1.
        cell: the smallest size.

    Raises:
        CohortTooSmall: fewer clients than one cell needs.
    """
    from scipy.sparse import csr_array

    clients = held.shape[0]
    if clients < cell:
        raise CohortTooSmall(f"A cell takes {cell} clients, and there are {clients}.")
    shared = csr_array(held[:, np.flatnonzero(held.sum(axis=0) > 1)])
    counts = np.maximum(np.asarray(shared.sum(axis=1)), 1)
    stands = np.full(clients, -1, dtype=np.int64)
    free, number = np.ones(clients, dtype=bool), 0

    def likeness(client: int) -> NDArray[np.float64]:
        overlap = np.asarray(shared @ shared[[client]].T.toarray()).ravel()
        found: NDArray[np.float64] = overlap / np.sqrt(counts * counts[client])
        return found

    for client in np.argsort(counts, kind="stable"):
        if not free[client] or free.sum() < cell:
            continue
        free[client] = False
        near = np.where(free, likeness(int(client)), -1.0)
        members = [client, *np.argsort(-near, kind="stable")[: cell - 1]]
        stands[members], free[members] = number, False
        number += 1
    room = np.full(number, -(-int(free.sum()) // number))
    for client in np.flatnonzero(free):
        near = likeness(int(client))
        totals = np.bincount(stands[stands >= 0], weights=near[stands >= 0], minlength=number)
        stands[client] = int(np.argmax(np.where(room > 0, totals, -1.0)))
        room[stands[client]] -= 1
    return stands


def matched(
    tags: Mapping[str, Bytes],
    digests: Mapping[str, bytes],
    match: Match,
    cells: Mapping[str, int] | None = None,
) -> Matched:
    """Compare all clients' tags.

    Args:
        tags: by client, (cap, TAG_BYTES), sorted.
        digests: by client, of the canary.
        match: the policy's guard.
        cells: by client, of an earlier epoch of the run, which stay as they were (O25). Of a cell
            with a missing member nothing is told, and nobody in it counts: what clients are told
            depends on whole cells only, whoever is dropped.

    Raises:
        BadEnvelope: canaries differ, tags are not sorted, or somebody is in no cell of the run.
        CohortTooSmall: fewer clients than a cell needs.
    """
    from scipy.sparse import csr_array

    names = sorted(tags)
    if set(names) != set(digests) or not set(names) <= set(cells or names):
        raise BadEnvelope("Others take part than in an earlier step of this run.")
    digest = same_canary(digests)
    held = incidence({name: tags[name] for name in names}, match.cap)
    if cells is None:
        cells = dict(zip(names, map(int, partition(held, match.cell)), strict=True))
    # Whoever vanished still stands in its cell, which is then not opened.
    sizes = np.bincount(list(cells.values())).astype(np.int64)
    members = [tuple(sorted(n for n in cells if cells[n] == cell)) for cell in range(len(sizes))]
    # Nor does it count here: otherwise who drops a client reads its items from what changes.
    stands = np.array([cells[name] for name in names])
    whole = np.bincount(stands, minlength=len(sizes)) == sizes
    counted = np.flatnonzero(whole[stands])
    held_whole = csr_array(held[counted])
    entries = (np.ones(len(counted), np.float32), (stands[counted], np.arange(len(counted))))
    of_cell = csr_array(entries, shape=(len(sizes), len(counted)))
    holds = csr_array((of_cell @ held_whole).T)  # (tags, cells)
    often = np.asarray(held_whole.sum(axis=0)) >= match.floor
    told = {}
    for at, name in enumerate(names):
        own = held.indices[held.indptr[at] : held.indptr[at + 1]]
        rows = (holds[own].toarray() > 0) & often[own][:, None]
        rows[rows.any(axis=1), cells[name]] = True  # which it knows, and checks
        packed = np.packbits(rows, axis=1)
        told[name] = Told(digest, cells[name], members[cells[name]], sizes, packed)
    return Matched(dict(cells), told)


def check_told(
    told: Told,
    tags: Tags,
    me: str,
    match: Match,
    clients: Sequence[str],
    before: Told | None = None,
) -> None:
    """Hold the matcher to what a client can see, before anything is said to a cell.

    Args:
        told: what the matcher said.
        tags: what this client sent.
        me: its name.
        match: the policy's guard.
        clients: who took part when the cells were made.
        before: what it said in an earlier epoch of the run.

    Raises:
        BadEnvelope: another canary; a cell that is too small, holds strangers or not this client,
            or is another than before; a bit where there can be none.
    """
    if len(told.digest) != DIGEST_BYTES or not hmac.compare_digest(told.digest, tags.digest):
        raise BadEnvelope(
            "The others have another canary than this client (O24).",
            why="a tag server used another key for some of the clients",
            fix="stop the run; compare both tag servers' ledgers",
        )
    members, sizes = told.members, told.sizes
    strangers = set(members) - set(clients)
    if me not in members or strangers or list(members) != sorted(set(members)):
        raise BadEnvelope("A cell names strangers, somebody twice, or not this client (O25).")
    if sizes.ndim != 1 or not len(sizes) or int(sizes.min()) < match.cell:
        raise BadEnvelope(f"A cell is smaller than the policy's {match.cell} (O25).")
    fits = 0 <= told.cell < len(sizes) and int(sizes[told.cell]) == len(members)
    if not fits or int(sizes.sum()) != len(clients):
        raise BadEnvelope("The sizes of the cells are not those of this cohort (O25).")
    same = before is None or (before.cell == told.cell and before.members == members)
    if not same or (before is not None and not np.array_equal(before.sizes, sizes)):
        raise BadEnvelope("The cells are other ones than earlier in this run (O25).")
    _check_bits(told, tags)


def _check_bits(told: Told, tags: Tags) -> None:
    width = -(-len(told.sizes) // 8)
    if told.bits.dtype != np.uint8 or told.bits.shape != (len(tags.sent), width):
        raise BadEnvelope("What the matcher found does not have the planned size.")
    rows = told.rows
    if not np.array_equal(np.packbits(rows, axis=1), told.bits):
        raise BadEnvelope("The matcher names cells that there are not.")
    # Bits under random tags are read by nobody; to refuse them would tell which tags are random.
    found: NDArray[np.bool_] = np.any(rows, axis=1)
    if not rows[found, told.cell].all():
        raise BadEnvelope("The matcher left this client's own cell out where it holds the tag.")


def held_rows(told: Told, tags: Tags) -> dict[int, Numbers]:
    """Return, for each of a client's items that others hold, the numbers of the cells with it."""
    rows = told.rows
    return {
        item: np.flatnonzero(rows[place])
        for item, place in sorted(tags.places.items())
        if rows[place].any()
    }


# What a cell adds up to: shared among its members, opened under a blind, read by clients only.
#
# Every member splits its integers into additive shares mod 2^32, one for each member, so that all
# but one of them together learn no more than the total. Each adds the shares that it holds and puts
# a blind on it that follows from the group's key; the aggregator adds those of a cell and hands the
# blinded totals to all clients (O25). There is no total of some of a cell: a member that vanishes
# costs its cell.
#
# No blind is used by two cells, whatever their members were told of numbers and places: a random
# nonce goes along with every member's shares, and blinds are bound to the hash of all of them, the
# cell's label. It tells nothing, and travels beside the sums.

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


# The form ``published``: others' vectors, one by one, under the items that they share (O24).
#
# As the field has it, but for who reads what: a client locks its vector, clipped and noised, under
# the group's key, so that the matcher carries it and reads nothing. It hands each client some of
# those who hold its tags, without names. What is left open is what the form is: strangers read
# single vectors, the same one under every item they share; and the matcher, with any client, reads
# all.

_SALT: Final = 32
_WORD_NEIGHBOURS: Final = np.dtype("<i4")


def locked_bytes(size: int) -> int:
    """Return how long a locked vector of `size` integers is."""
    return _SALT + 4 * size + OVERHEAD


def _info(run: str, epoch: int) -> bytes:
    return b"secure-fgl/neighbour\0" + canonical([run, epoch])


def locked(values: NDArray[np.int64], group: bytes, run: str, epoch: int) -> bytes:
    """Lock a client's vector, (d,), for all clients and nobody else.

    Raises:
        UnfitMessage: a value needs more than 32 bits.
    """
    words = values.astype(_WORD_NEIGHBOURS)
    if values.ndim != 1 or not np.array_equal(words, values):
        raise UnfitMessage("A vector of integers of 32 bits is published.")
    salt = entropy(_SALT)  # a key for this message alone
    return salt + lock(derive(group, "neighbour", salt), _info(run, epoch), words.tobytes())


def unlocked(box: bytes, group: bytes, run: str, epoch: int) -> NDArray[np.int64]:
    """Return what a client locked; raises BadEnvelope if no client of this epoch did."""
    try:
        words = unlock(derive(group, "neighbour", box[:_SALT]), _info(run, epoch), box[_SALT:])
    except CryptoError as error:
        raise BadEnvelope("A neighbour's vector is of no client of this epoch.") from error
    return np.frombuffer(words, dtype=_WORD_NEIGHBOURS).astype(np.int64)


@dataclass(frozen=True)
class Neighbours:
    """What the matcher hands one client.

    Attributes:
        digest: of the canary that all clients have.
        boxes: (vectors, bytes), locked, random bytes in place of those that are not there.
        links: (cap, neighbours), 1 + the box that the j-th tag brings; 0: none.
    """

    digest: bytes = field(repr=False)
    boxes: Bytes = field(repr=False)
    links: NDArray[np.int64] = field(repr=False)


def neighbours(
    tags: Mapping[str, Bytes],
    digests: Mapping[str, bytes],
    boxes: Mapping[str, bytes],
    match: Match,
) -> dict[str, Neighbours]:
    """Choose, for each client, some others who hold its tags; at random, by the system's entropy.

    Args:
        tags: by client, (cap, TAG_BYTES), sorted.
        digests: by client, of the canary.
        boxes: by client, its locked vector, all of one length.
        match: bounds how many.

    Raises:
        BadEnvelope: canaries differ, tags are not sorted, or somebody's part is missing.
    """
    names = sorted(tags)
    if set(names) != set(digests) or set(names) != set(boxes):
        raise BadEnvelope("Of some clients there is only a part.")
    digest = same_canary(digests)
    held = incidence({name: tags[name] for name in names}, match.cap)
    whole = np.frombuffer(b"".join(boxes[name] for name in names), dtype=np.uint8)
    if whole.size != len(names) * len(boxes[names[0]]):
        raise UnfitMessage("Locked vectors do not have the planned size.")
    whole = whole.reshape(len(names), -1)
    by_tag = held.tocsc()
    found = {}
    for at, name in enumerate(names):
        own = held.indices[held.indptr[at] : held.indptr[at + 1]]
        lists = [by_tag.indices[by_tag.indptr[tag] : by_tag.indptr[tag + 1]] for tag in own]
        who, links = _pick(at, lists, match)
        filled = np.frombuffer(entropy(match.vectors * whole.shape[1]), dtype=np.uint8)
        filled = filled.reshape(match.vectors, -1).copy()
        filled[: len(who)] = whole[who]
        found[name] = Neighbours(digest, filled, links)
    return found


def _pick(
    me: int, lists: list[NDArray[np.int32]], match: Match
) -> tuple[list[int], NDArray[np.int64]]:
    """Return whom one client gets, and under which of its tags."""
    stream = Stream(entropy(32))
    place: dict[int, int] = {}  # of whom, in the order handed over
    links = np.zeros((match.cap, match.neighbours), dtype=np.int64)
    for row in np.argsort(stream.words(len(lists)), kind="stable"):
        holders = lists[row]
        if len(holders) < match.floor:
            continue
        others = holders[holders != me]
        order = others[np.argsort(stream.words(len(others)), kind="stable")]
        chosen: list[int] = []
        for other in map(int, order):
            if len(chosen) < match.neighbours and (other in place or len(place) < match.vectors):
                place.setdefault(other, len(place))
                chosen.append(1 + place[other])
        links[row, : len(chosen)] = chosen
    return list(place), links


def check_neighbours(
    told: Neighbours, tags: Tags, mine: bytes, match: Match, where: tuple[str, int]
) -> tuple[NDArray[np.int64], dict[int, list[int]]]:
    """Open what the matcher handed over, after holding it to what a client can see.

    That a vector is of somebody who holds the item cannot be seen; it is of some client.

    Args:
        told: the matcher's.
        tags: what this client sent.
        mine: its own locked vector.
        match: the policy's guard.
        where: run and epoch.

    Returns:
        The vectors, (n, d), and for each own item that brings some their rows.

    Raises:
        BadEnvelope: another canary; a vector under a random tag, twice under one, twice in all, of
            oneself, or of no client.
    """
    if not hmac.compare_digest(told.digest, tags.digest):
        raise BadEnvelope("The others have another canary than this client (O24).")
    links, boxes = told.links, told.boxes
    if links.shape != (match.cap, match.neighbours) or boxes.shape != (match.vectors, len(mine)):
        raise BadEnvelope("What the matcher found does not have the planned size.")
    if links.min() < 0 or links.max() > match.vectors:
        raise BadEnvelope("The matcher names vectors that there are not.")
    used = int(links.max())
    if set(range(1, used + 1)) - set(links.ravel().tolist()):
        raise BadEnvelope("The matcher handed over vectors that belong to no item.")
    rows = {item: [int(link) - 1 for link in links[at] if link] for item, at in tags.places.items()}
    if sum(map(len, rows.values())) != int((links > 0).sum()):
        raise BadEnvelope("The matcher found somebody who holds a random tag.")
    raw = [boxes[at].tobytes() for at in range(used)]
    if any(len(set(row)) != len(row) for row in rows.values()) or len(set(raw)) != used:
        raise BadEnvelope("The matcher handed one neighbour over twice.")
    if mine in raw:
        raise BadEnvelope("The matcher handed a client its own vector.")
    vectors = [unlocked(box, tags.group, *where) for box in raw]
    size = (len(mine) - _SALT - OVERHEAD) // 4
    stack = np.stack(vectors) if vectors else np.zeros((0, size), dtype=np.int64)
    return stack, {item: row for item, row in sorted(rows.items()) if row}
