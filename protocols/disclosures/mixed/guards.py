"""The guards of MIXED messages: who may be seen only inside a mixture, and of how many (O22)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from crypto.noise import MAX_SCALE
from protocols.policy.guard import Guard, ValueStage

_MIN_STEPS = 8.0  # the smallest noise in grid steps (O19)


class Mix(Guard):
    """Draw groups once per run, and let only the mean of each position's records leave.

    Attributes:
        floor: b, how many distinct records stand at every position of every mixture, at least.
        apart: two mixtures rest on the same records, or differ by at least so many: their
            difference is a mixture of just those that differ.
        bucket: the number of mixtures is a multiple of so many, or a power of two below it, so that
            it does not tell how many records there are (O28). Labels do, where they are said and
            not blurred: shares tell a mixture's size, and the sizes add up.
        bits: of the grid on which means leave.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.BOUNDED,)
    gives: ClassVar[ValueStage] = ValueStage.MIXED
    guard: Literal["mix"] = "mix"
    floor: int = Field(default=32, ge=4, le=10_000, strict=True)
    apart: int = Field(default=8, ge=2, le=10_000, strict=True)
    bucket: int = Field(default=4, ge=1, le=1024, strict=True)
    bits: int = Field(default=16, ge=4, le=24, strict=True)

    @property
    def levels(self) -> int:
        """The largest level of the grid."""
        return (1 << (self.bits - 1)) - 1

    @model_validator(mode="after")
    def _apart_is_within_reach(self) -> Mix:
        if self.apart > self.floor:
            raise ValueError("apart: no more than the floor, or single mixtures could not leave")
        return self


class Blur(Guard):
    """Add discrete Gaussian noise to every entry of every mixture, labels included (O14, O22).

    No epsilon is claimed: a record may stand at many positions of many mixtures, in every round.
    Features get fresh noise in every release: over R rounds in which the table hardly moves it
    averages out, down to z / sqrt(R). Labels do not change; their noise is drawn once in a run.

    Attributes:
        multiplier: z; the noise of one entry is z times one record's own term in a mixture, at
            most: the clip norm (for labels: 1) over the floor. Whether a record is in a mean at all
            moves it by up to twice that, as the others' weights change with it.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.MIXED,)
    gives: ClassVar[ValueStage] = ValueStage.BLURRED
    guard: Literal["blur"] = "blur"
    multiplier: float = Field(gt=0, le=1e3)

    def steps(self, mix: Mix) -> float:
        """Return the noise in grid steps; raises ValueError beyond what can be drawn well."""
        found = self.multiplier * mix.levels / mix.floor
        if not _MIN_STEPS <= found <= MAX_SCALE:
            raise ValueError(
                f"blur: its noise would be {found:.3g} grid steps, and it must lie between "
                f"{_MIN_STEPS:.0f} and {MAX_SCALE:.0f}; change multiplier or the bits of 'mix'"
            )
        return found


GUARDS = (Mix, Blur)
