"""The arithmetic of MAXIMUM: integers as one number a level, and totals as the largest of them.

A client adds, for each level that its integer reaches, a fresh uniform number of Z_t, and 0 for the
levels above, with t = 2^64. The total of a level that somebody reaches is uniform whoever else
reaches it, so that it tells neither how many nor who; it is 0 by chance with 1/t. The total of a
level that nobody reaches is 0. So the totals tell the largest integer and nothing else.

Numbers that are never 0 would not do: of one client alone the total would never be 0, and of
several it could be.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crypto.samplers import Stream

Words = NDArray[np.uint64]


def raised(values: NDArray[np.int64], top: int, fresh: Stream) -> Words:
    """Return one client's numbers, shape (top, n).

    Args:
        values: shape (n,), each from 0 to top.
        top: the highest level.
        fresh: a stream that is used for nothing else.
    """
    reached = values >= np.arange(1, top + 1)[:, None]
    return np.where(reached, fresh.words(reached.size).reshape(reached.shape), np.uint64(0))


def split(numbers: Words, fresh: Stream) -> tuple[Words, Words]:
    """Return two shares, each uniform by itself, whose sum mod t is `numbers`."""
    share = fresh.words(numbers.size).reshape(numbers.shape)
    return share, numbers - share


def largest(totals: Words) -> NDArray[np.int64]:
    """Return the highest level of which a total, shape (top, n), is not 0; 0 where none is."""
    levels = np.arange(1, len(totals) + 1)[:, None]
    found: NDArray[np.int64] = np.where(totals != 0, levels, 0).max(axis=0)
    return found
