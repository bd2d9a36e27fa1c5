"""The guards of SIMILARITY messages: directions, encrypted so that pairs can be multiplied (O3)."""

from __future__ import annotations

from typing import ClassVar, Literal

from protocols.disclosures._evaluated.guards import Evaluated
from protocols.policy.guard import Guard, ValueStage


class Normalise(Guard):
    """Bring a vector to length 1: its direction is compared, and its length stays here."""

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.VALUE,)
    gives: ClassVar[ValueStage] = ValueStage.UNIT
    guard: Literal["normalise"] = "normalise"


class Cosine(Evaluated):
    """Encrypt a unit vector with CKKS; pairs are multiplied encrypted, and one number is read (O3).

    Attributes:
        scheme: of `crypto.homomorphic.similarity`.
        opener: who holds the secret key, reads one number a pair and returns it rounded.
        witnesses: how many parties recompute the products before anything is opened (O4). With 0
            an active aggregator can have a single upload opened; the plan says so.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.UNIT,)
    gives: ClassVar[ValueStage] = ValueStage.CIPHERTEXT
    guard: Literal["cosine"] = "cosine"
    scheme: Literal["ckks-cosine"] = "ckks-cosine"


GUARDS = (Normalise, Cosine)
