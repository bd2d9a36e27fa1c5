"""The guard of WEIGHTED_SUM messages: encryption under which rows are weighed (O1, O10)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from protocols.disclosures._evaluated.guards import Evaluated
from protocols.policy.guard import ValueStage


class Weigh(Evaluated):
    """Encrypt the integers with BFV; each receiver gets one combination, opened blind (O1, O10).

    Attributes:
        scheme: of `crypto.homomorphic.weighted`.
        opener: who holds the secret key, and opens every combination under a blind.
        witnesses: see `Evaluated`.
        total: what the integer weights of every receiver add up to.
        top: how many others at most enter one combination of an honest aggregator, the heaviest of
            those that the algorithm weighs; None: all of them. Ties stay whole: what weighs as much
            as the last one enters too, so rows whose others weigh alike (FED-PUB's first round) are
            not cut. Witnesses check the smallest group (O10), not this.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.INTEGER,)
    gives: ClassVar[ValueStage] = ValueStage.CIPHERTEXT
    guard: Literal["weigh"] = "weigh"
    scheme: Literal["bfv-weighted"] = "bfv-weighted"
    total: Literal[64, 128] = 128
    top: int | None = Field(default=None, ge=4, le=1024, strict=True)


GUARDS = (Weigh,)
