"""What guards have in common under which results are computed on ciphertexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from protocols.policy.guard import Guard, guard_of


class Evaluated(Guard):
    """Encrypt; the aggregator computes, witnesses compute the same, and the opener opens results.

    Attributes:
        scheme: of `crypto`.
        opener: who holds the secret key, and opens results alone.
        witnesses: how many parties recompute the results before anything is opened (O4). With 0
            an active aggregator can have a single upload opened; the plan says so.
    """

    scheme: str
    opener: Literal["key_authority"] = "key_authority"
    witnesses: int = Field(default=1, ge=0, le=9, strict=True)


def evaluated(chain: Sequence[Guard]) -> Evaluated | None:
    """Return the guard under which results are computed on ciphertexts, witnessed and opened."""
    return guard_of(chain, Evaluated)
