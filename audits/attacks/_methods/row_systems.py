"""Solving what one receiver, or two that pool, were told of rows for single nodes' features.

The unknowns are the terms of other clients' nodes, the equations the rows. Three ways, and a node
counts as read if one of them names its columns:

* **Elimination.** A node whose unit vector lies in the span of the rows is read exactly: a row of
  one neighbour, two rows that differ by one, and any longer combination. The projection onto the
  span says which nodes these are, the least-norm solution what they hold.
* **Equal values.** Features are sparse, and every non-zero entry of a term of a bag of words is one
  number, that node's own: 1 over its words and the root of its degree. Where the supports hardly
  meet, a row's entries fall into groups of equal values, one a node.
* **Largest entries.** Where rows are noised no two entries are equal. Of a node that the rows fix,
  the largest entries of the solution are taken for its words, as many as it has: the attack is
  told how many.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["determined", "equal_values", "read"]

Array = NDArray[np.float64]
Supports = list[frozenset[int]]
_EXACT = 1e-9
_FEWEST = 3  # columns of a group that says anything


def determined(system: Array, sums: Array) -> tuple[NDArray[np.bool_], Array]:
    """Return which unknowns the equations fix, (n,), and the least-norm solution, (n, F).

    Args:
        system: (rows, n), how often each node's term enters each row.
        sums: (rows, F).
    """
    inverse = np.linalg.pinv(system, rcond=1e-10)
    along = np.einsum("nr,rn->n", inverse, system)
    return np.abs(along - 1.0) < _EXACT, inverse @ sums


def equal_values(row: Array, tolerance: float) -> Supports:
    """Return the columns of each group of entries of a row that are equal to within a tolerance."""
    columns = np.flatnonzero(np.abs(row) > tolerance)
    if not len(columns):
        return []
    order = columns[np.argsort(row[columns], kind="stable")]
    cuts = np.flatnonzero(np.diff(row[order]) > tolerance) + 1
    groups = np.split(order, cuts)
    return [frozenset(group.tolist()) for group in groups if len(group) >= _FEWEST]


def read(
    system: Array, sums: Array, terms: Array, tolerance: float, *, groups: bool = True
) -> Array:
    """Return for each node whether it was read, (n,) of 0 and 1.

    By elimination a node is read if its term is found, to within the grid; by equal values and
    largest entries if its non-zero columns are named, but for one in twenty. Of dense terms no
    columns are asked for.

    Args:
        system: see `determined`.
        sums: likewise.
        terms: (n, F), the truth.
        tolerance: by how much the grid moves one entry of a sum.
        groups: whether equal values and largest entries are looked for as well.
    """
    fixed, solved = determined(system, sums)
    found = np.zeros(system.shape[1])
    loose = 4.0 * tolerance * max(1, len(system))
    off = np.abs(solved - terms).max(axis=1, initial=0.0)
    found[fixed & (off <= loose)] = 1.0
    if not groups:
        return found
    columns = [frozenset(np.flatnonzero(term).tolist()) for term in terms]
    for node in np.flatnonzero(fixed):
        words = len(columns[node])
        if 2 * words < solved.shape[1]:
            largest = np.argsort(-np.abs(solved[node]), kind="stable")[:words]
            found[node] = max(found[node], _same(frozenset(largest.tolist()), columns[node]))
    for entering, row in zip(system, sums, strict=True):
        named = equal_values(row, 2.0 * tolerance)
        for node in np.flatnonzero(entering):
            sparse = 2 * len(columns[node]) < len(row)
            if sparse and any(_same(group, columns[node]) for group in named):
                found[node] = 1.0
    return found


def _same(named: frozenset[int], true: frozenset[int]) -> bool:
    """Tell whether columns are a node's, but for one in twenty."""
    both = len(named & true)
    return bool(true) and 2.0 * both >= 0.95 * (len(named) + len(true))
