"""The matcher's work: which tags are equal, who stands in one cell, and which cells hold a tag.

The matcher sees tags. Cells are disjoint, of clients who share tags, and every client is in exactly
one of them (O25): sums over cells are all that is ever opened of what clients carry, and their rank
is the number of cells. Means per item instead would single out every client.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.tagging import DIGEST_BYTES, TAG_BYTES, Bytes, Tags
from protocols.errors import BadEnvelope, CohortTooSmall, UnfitMessage

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "Matched",
    "Told",
    "check_told",
    "held_rows",
    "incidence",
    "matched",
    "partition",
    "same_canary",
]

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
