"""What an attack on cosines is given: matrices that were opened, and what is true of their clients.

It stays where the truth lies, as all that attacks are given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Compared", "Matrix"]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Matrix:
    """What one Ask opened.

    Attributes:
        round: of the run.
        places: (k,), which of the clients were compared, ascending.
        seen: (k, k), the cosines as they were opened.
        raw: (k, k), the cosines of the same vectors before protection, computed again.
        vectors: (k, d), these vectors, each of length 1; zeros stay zeros.
    """

    round: int
    places: Counts
    seen: Array
    raw: Array
    vectors: Array


@dataclass(frozen=True, repr=False)
class Compared:
    """Every captured matrix of a run.

    Attributes:
        payload: ``P15``; ``P14`` where the vectors themselves left in clear.
        clients: (K,), their names.
        matrices: by round; empty if none was opened in the captured rounds.
        alike: (K, K), how alike the clients' data are; None if nobody can say.
        by: what that is measured by, in words.
        records: (K,), how many training records each has.
    """

    payload: str
    clients: tuple[str, ...]
    matrices: tuple[Matrix, ...]
    alike: Array | None
    by: str
    records: Counts

    def mean(self, side: str) -> Array:
        """Return the mean cosine of every two clients over all matrices, (K, K).

        Two who were never compared were in different clusters: they count as less alike than any
        who were.

        Args:
            side: ``seen`` or ``raw``.
        """
        count = len(self.clients)
        total, often = np.zeros((count, count)), np.zeros((count, count))
        for one in self.matrices:
            where = np.ix_(one.places, one.places)
            total[where] += getattr(one, side)
            often[where] += 1.0
        met = often > 0
        means = total / np.maximum(often, 1.0)
        found: Array = np.where(met, means, means[met].min(initial=0.0) - 1.0)
        return found
