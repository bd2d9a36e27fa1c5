"""Who stands in which mixture: drawn once, so that no two mixtures tell a single record (O15, O22).

A member is one row of records, its centre first. Every member is in one group; the mixture of a
group has, at each position, the mean over the distinct records that its members bring there. So a
record counts once, however many members share it: an isolated node that repeats itself makes no
crowd, and a hub is not half of a mixture.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crypto.samplers import Stream
from protocols.mix_guards import Mix
from protocols.mix_layout import whole

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
        size: members of a group, at least.
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


def _hold(records: Numbers, groups: Numbers, mix: Mix) -> bool:
    """Tell whether all mixtures hold enough records, and no two differ by too few."""
    each = (records[groups == group] for group in range(int(groups.max()) + 1))
    return all(_stands(members, mix) for members in each) and _apart(records, groups, mix)


def _stands(records: Numbers, mix: Mix) -> bool:
    """Tell whether a group of these members has enough records at, and between, its positions."""
    named, local = np.unique(records, return_inverse=True)
    positions = records.shape[1]
    there = np.zeros((positions, named.size), dtype=np.float32)
    there[np.broadcast_to(np.arange(positions), records.shape), local.reshape(records.shape)] = 1
    shared = there @ there.T
    own = shared.diagonal()
    differ = own[:, None] + own - 2 * shared
    return bool(own.min() >= mix.floor and not np.any((differ > 0) & (differ < mix.apart)))


def _apart(records: Numbers, groups: Numbers, mix: Mix) -> bool:
    """Tell whether mixtures of two groups never differ by too few records."""
    from scipy.sparse import csr_array

    cell, record = incidence(records, groups)
    positions, count = records.shape[1], int(groups.max()) + 1
    shape = (count * positions, int(records.max()) + 1)
    there = csr_array((np.ones(cell.size, dtype=np.float32), (cell, record)), shape=shape)
    sizes = np.bincount(cell, minlength=shape[0])
    for group in range(count - 1):  # a block of rows at a time: the whole may be large
        own, others = group * positions, (group + 1) * positions
        shared = (there[own:others] @ there[others:].T).toarray()
        differ = sizes[own:others, None] + sizes[others:] - 2 * shared
        if np.any((differ > 0) & (differ < mix.apart)):
            return False
    return True
