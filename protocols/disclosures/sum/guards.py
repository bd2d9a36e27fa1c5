"""The guards of SUM messages: noise, masks, and encryption that adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from protocols.policy.guard import Guard, ValueStage, find

MAX_DELTA = 1e-4
"""Largest delta of a record: it lies below 1/records, and a site's number of them is private."""


class Noise(Guard):
    """Add discrete noise on the integer grid, enough for (epsilon, delta) over the whole run (O14).

    The unit is one client: epsilon bounds what all noised sums of the run together tell about
    whether this client's data took part. Each client adds its share of the noise; the plan says how
    much, and how many honest clients are counted on (O18). Sums with exact counts are refused.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.INTEGER,)
    gives: ClassVar[ValueStage] = ValueStage.NOISED
    guard: Literal["noise"] = "noise"
    mechanism: Literal["discrete_gaussian", "discrete_laplace"] = Field(
        "discrete_gaussian", description="shape of the noise"
    )
    epsilon: float = Field(gt=0, le=1e6, description="for the whole run, of one client")
    delta: float = Field(gt=0, lt=0.1, description="for the whole run, of one client")


class RecordNoise(Guard):
    """Add discrete noise to what counts single records: scores on validation and test records.

    The unit is one record, there or not, and each client's own noise alone hides it. How far one
    record moves a count stands in the message's declaration (`moves`); without it the message is
    refused. Gradients of training records are hidden by the policy's `training`, without which
    nothing bounds what a record does to a model, and so to what is counted with it.

    Attributes:
        mechanism: ``discrete_gaussian`` or ``discrete_laplace``.
        epsilon, delta: for one record and all counts of the run; how many records there are is not
            public, so delta is at most 1e-4.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.INTEGER,)
    gives: ClassVar[ValueStage] = ValueStage.NOISED
    guard: Literal["record_noise"] = "record_noise"
    mechanism: Literal["discrete_gaussian", "discrete_laplace"] = "discrete_gaussian"
    epsilon: float = Field(gt=0, le=64)
    delta: float = Field(gt=0, le=MAX_DELTA)

    @model_validator(mode="before")
    @classmethod
    def _nearest(cls, given: Any) -> Any:
        """Say what would be lawful in the place of what is not."""
        epsilon, delta = (given.get(n) for n in ("epsilon", "delta")) if given else (None, None)
        if isinstance(epsilon, int | float) and not 0 < epsilon <= 64:
            raise ValueError(f"epsilon {epsilon:g} hides nothing or all; take 0.1 to 16")
        if isinstance(delta, int | float) and not 1e-10 < delta <= MAX_DELTA:
            raise ValueError(
                f"record_noise: delta {delta:g} could let single records out, as how many there "
                f"are is not public, or cannot pay for a sampler's tails; set it to {MAX_DELTA:g}, "
                "or less down to 1e-9"
            )
        return given


class Mask(Guard):
    """Add pairwise and self-masks, uniform mod t per coefficient; drop-outs are recovered (O4-O7).

    They come off only in the sum over the exact survivors of the exact cohort. A single upload, a
    subset, or what a stolen key decrypts, is uniform.

    Attributes:
        corrupt, dropped: shares of clients assumed to collude and to vanish. They choose how many
            neighbours a client has where the graph of pairs is not complete (100 clients and more).
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.INTEGER, ValueStage.NOISED)
    gives: ClassVar[ValueStage] = ValueStage.MASKED
    guard: Literal["mask"] = "mask"
    corrupt: float = Field(default=0.1, ge=0, lt=0.5)
    dropped: float = Field(default=0.05, ge=0, lt=0.5)


class He(Guard):
    """Encrypt the integers with BFV under the key authority's public key; opened blind (O1).

    Attributes:
        scheme: ``bfv`` (192-bit security, 44 bits of plaintext per coefficient) or ``bfv48``
            (128-bit security, 48 bits: three 12-bit values of ten clients).
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (
        ValueStage.INTEGER,
        ValueStage.NOISED,
        ValueStage.MASKED,
    )
    gives: ClassVar[ValueStage] = ValueStage.CIPHERTEXT
    guard: Literal["he"] = "he"
    scheme: Literal["bfv", "bfv48"] = "bfv"


class Ckks(Guard):
    """Encrypt the same integers with CKKS; the authority rounds to the grid (O2).

    CKKS adds over the integers, so only what is masked may stand inside.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.MASKED,)
    gives: ClassVar[ValueStage] = ValueStage.CIPHERTEXT
    guard: Literal["ckks"] = "ckks"


GUARDS = (Noise, RecordNoise, Mask, He, Ckks)

SCHEMES = {"bfv": "bfv-sealapi", "bfv48": "bfv48-sealapi", "ckks": "ckks-sealapi"}
"""What `crypto.homomorphic.he.scheme` calls each of them."""


def encryption(chain: Sequence[Guard]) -> str | None:
    """Return which encryption a chain asks for: ``bfv``, ``bfv48``, ``ckks``, or None."""
    found = find(chain, "he") or find(chain, "ckks")
    return found.scheme if isinstance(found, He) else "ckks" if found else None
