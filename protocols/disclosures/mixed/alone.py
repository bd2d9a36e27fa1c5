"""How many records a client's mixtures give away once it is known who is in which group (O22).

Each position of each group is one equation over the client's records. A record is determined where
some combination of equations holds it alone. Comparing the number of equations with that of records
does not tell: a few neighbours that stand in many mixtures are determined long before all are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.samplers import Stream
from protocols.disclosures.mixed.groups import Numbers, incidence

LARGEST = 4096
"""With more equations and more records than this it is not computed: it would take seconds."""

_PROBES = 3
_ROUNDS = 6
_BLOCK = 512  # rows of a dense matrix that are filled at a time
_RIDGE = 1e-13  # above what rounding does to a Cholesky factor, far below squared singular values
_NOTHING = 1e-6


def alone(records: Numbers, groups: Numbers, chance: Stream) -> int | None:
    """Return how many records are determined by the mixtures of one round.

    A record is if every solution of "all mixtures are zero" is zero at it. So a few random vectors
    are projected onto these solutions: by repeated ridge regression, which needs one Cholesky
    factor of the smaller side and, unlike a rank, no threshold near rounding.

    Args:
        records: (members, P), numbers of records.
        groups: (members,), the group of each.
        chance: of the vectors.

    Returns:
        The number, rounded down to a power of two, so that it is no exact count of data; None
        where equations and records are both more than `LARGEST`.
    """
    from scipy.linalg import cho_factor, cho_solve
    from scipy.sparse import csr_array

    cell, record = incidence(records, groups)
    named, local = np.unique(record, return_inverse=True)
    shape = (int(cell[-1]) + 1, named.size)
    if min(shape) > LARGEST:
        return None
    there = csr_array((np.ones(cell.size), (cell, local.ravel())), shape=shape)
    wide = shape[0] <= shape[1]
    gram = _gram(there if wide else there.T.tocsr())
    ridge = _RIDGE * len(gram) * float(gram.sum(axis=1).max())
    gram[np.diag_indices(len(gram))] += ridge
    factor = cho_factor(gram, overwrite_a=True, check_finite=False)
    left = chance.words(named.size * _PROBES).astype(np.float64).reshape(-1, _PROBES) / 2**63 - 1
    for _ in range(_ROUNDS):
        if wide:
            shown = np.asarray(there @ left)
            left = left - there.T @ np.asarray(cho_solve(factor, shown))
        else:
            left = ridge * np.asarray(cho_solve(factor, left))
    found = int(np.sum(np.abs(left).max(axis=1) < _NOTHING))
    return 1 << (found.bit_length() - 1) if found else 0


def _gram(rows: Any) -> NDArray[np.float64]:
    """Return the inner products of all pairs of sparse rows, dense."""
    count = rows.shape[0]
    found = np.empty((count, count))
    for start in range(0, count, _BLOCK):
        found[start : start + _BLOCK] = (rows[start : start + _BLOCK] @ rows.T).toarray()
    return found
