"""Who stands in which mixture: drawn once, so that no two mixtures tell a single record (O15, O22).

A member is one row of records, its centre first. Every member is in one group; the mixture of a
group has, at each position, the mean over the distinct records that its members bring there. So a
record counts once, however many members share it: an isolated node that repeats itself makes no
crowd, and a hub is not half of a mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.samplers import Stream
from protocols.disclosures.mixed.guards import Mix
from protocols.disclosures.mixed.layout import whole

Numbers = NDArray[np.int64]

_DEALS = 3  # before groups become fewer


def incidence(records: Numbers, groups: Numbers) -> tuple[Numbers, Numbers]:
    """Return who stands where: (cell, record) pairs, each once, in ascending order.

    Args:
        records: (members, P), numbers of records.
        groups: (members,), the group of each.

    Returns:
        Two vectors. A cell is group times P plus position.
    """
    positions, width = records.shape[1], int(records.max()) + 1
    cells = groups[:, None] * positions + np.arange(positions)
    pairs = np.unique(cells * width + records)
    return pairs // width, pairs % width


def draw(records: Numbers, size: int, most: int, mix: Mix | None, stream: Stream) -> Numbers | None:
    """Return each member's group, (members,), numbered from 0; None if nothing may leave.

    Members are dealt at random into as many groups as give each `size` of them; nobody is left
    over. If a position of a group has fewer distinct records than the floor, or two mixtures would
    differ by too few, they are dealt again, at last into fewer and larger groups.

    Args:
        records: (members, P), numbers of records; equal records have equal numbers.
        size: members of a group, at least; if there are fewer in all, they are one group.
        most: groups, at most.
        mix: what must hold; None: nothing.
        stream: from the operating system, where a privacy claim rests on it.

    Returns:
        None if not even one group of all members holds, or there are no members.
    """
    bucket = mix.bucket if mix is not None else 1
    count = whole(min(len(records) // size, most), bucket)
    while len(records):
        for _ in range(_DEALS):
            order = np.argsort(stream.words(len(records)), kind="stable")
            groups = np.empty(len(records), dtype=np.int64)
            groups[order] = np.arange(len(records)) * count // len(records)
            if mix is None or _hold(records, groups, mix):
                return groups
        if count == 1:
            break
        count = whole(count - 1, bucket)
    return None


def standing(records: Numbers, drawn: Numbers, groups: Numbers, mix: Mix) -> Numbers:
    """Return the groups whose mixtures may leave by now, numbered anew; -1: withheld.

    A model may send records to one point that differed when the groups were drawn. A mixture stays
    away while its positions do not hold just as many records as then: it would rest on too few of
    them, or the difference to another round's would tell those few that became the same. Neither
    may two mixtures differ by too few records by now. As many leave as tell a bucket.

    Args:
        records: (members, P), numbers of records as they are by now.
        drawn: (members, P), those that the groups were drawn with.
        groups: (members,), as drawn.
        mix: what must hold.
    """
    if np.array_equal(records, drawn):
        return groups
    there, changed = _there(records, groups), _changed(records, drawn, groups)
    kept: list[int] = []
    for group in np.flatnonzero(~changed).tolist():
        if not _near(there, group, [*kept, group], mix):
            kept.append(group)
    del kept[whole(len(kept), mix.bucket) :]
    number = np.full(changed.size, -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    return number[groups]


def _changed(records: Numbers, drawn: Numbers, groups: Numbers) -> NDArray[np.bool_]:
    """Tell of each group whether records at one of its positions became one, or no longer are."""
    _, both = np.unique(drawn * (int(records.max()) + 1) + records, return_inverse=True)
    shape = int(groups.max()) + 1, records.shape[1]
    before, now, joint = (
        np.bincount(incidence(numbers, groups)[0], minlength=shape[0] * shape[1]).reshape(shape)
        for numbers in (drawn, records, both.reshape(records.shape))
    )
    changed: NDArray[np.bool_] = ((before != joint) | (now != joint)).any(axis=1)
    return changed


def _hold(records: Numbers, groups: Numbers, mix: Mix) -> bool:
    """Tell whether all mixtures hold enough records, and no two differ by too few."""
    there, count = _there(records, groups), int(groups.max()) + 1
    if min(cells.sum(axis=1).min() for cells in there) < mix.floor:
        return False
    return not any(_near(there, group, range(group, count), mix) for group in range(count))


def _there(records: Numbers, groups: Numbers) -> list[Any]:
    """Return by group which record stands at which of its positions, sparse (P, records)."""
    from scipy.sparse import csr_array

    cell, record = incidence(records, groups)
    positions, count = records.shape[1], int(groups.max()) + 1
    shape = (count * positions, int(records.max()) + 1)
    there = csr_array((np.ones(cell.size, dtype=np.float32), (cell, record)), shape=shape)
    return [there[group * positions : (group + 1) * positions] for group in range(count)]


def _near(there: Sequence[Any], group: int, others: Sequence[int], mix: Mix) -> bool:
    """Tell whether a mixture of a group differs by too few records from one of others'."""
    from scipy.sparse import vstack

    own, rest = there[group], vstack([there[other] for other in others], format="csr")
    differ = own.sum(axis=1)[:, None] + rest.sum(axis=1) - 2 * (own @ rest.T).toarray()
    return bool(np.any((differ > 0) & (differ < mix.apart)))
