"""What an attack on a generator's gradients is given: answers to one client's fGen.

It stays where the truth lies, as all that attacks are given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Answer", "Answers"]

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Answer:
    """What one client said to another client's generator in one step.

    Attributes:
        client: whose records are in it.
        entered: (B, h + 1), what enters the last layer for each of B draws, and a one for its bias:
            known to who reads.
        drawn: (B, F), the features that were drawn: known likewise.
        matched: (B,), which of `Answers.candidates` each draw was held against; -1: none.
        raw: (h + 1, F), the gradient of the last layer and its bias, before protection.
        seen: the same of what the reader read: of this client alone, or of the sum it is in.
    """

    client: str
    entered: Array
    drawn: Array
    matched: NDArray[np.int64]
    raw: Array
    seen: Array


@dataclass(frozen=True, repr=False)
class Answers:
    """All that was looked at.

    Attributes:
        payload: ``P12``.
        what: whose message it is, in words.
        candidates: (N, F), features of records, of which the attacker asks which are in it.
        answers: two at least, of two clients.
    """

    payload: str
    what: str
    candidates: Array
    answers: tuple[Answer, ...]
