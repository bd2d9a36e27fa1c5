"""The guard of MAXIMUM messages: one number a level, in two shares."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from protocols.policy.guard import Guard, ValueStage


class Levels(Guard):
    """Say of each level whether the value reaches it, by a fresh number or by 0, in two shares.

    Attributes:
        top: the highest level; larger values count as this one.
        opener: who adds the second shares, and returns their total alone.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.VALUE,)
    gives: ClassVar[ValueStage] = ValueStage.MASKED
    guard: Literal["levels"] = "levels"
    top: int = Field(default=8, ge=1, le=64, strict=True)
    opener: Literal["key_authority"] = "key_authority"


GUARDS = (Levels,)
