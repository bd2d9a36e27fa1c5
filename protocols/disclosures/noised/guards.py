"""The guards of NOISED messages: FedPerGNN's clip, pseudo items and Laplace noise, as published."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from crypto.noise import MAX_SCALE, MIN_SCALE
from protocols.policy.guard import Guard, ValueStage

__all__ = ["GUARDS", "LEVELS", "Decoys", "Laplace"]

LEVELS = 1 << 14
"""Grid steps from 0 to the clip bound."""


class Decoys(Guard):
    """Send rows of items that the client does not hold among those it holds (pseudo items).

    Their values are normal with the sample mean and covariance of the client's own rows, so they
    depend on its data and no epsilon holds for which rows are sent (O21). Fresh decoys differ from
    round to round and the items that stay are the client's own (attack A01); sticky ones are drawn
    once in a run.

    Attributes:
        rows: how many rows leave; at most half of them are the client's own, as far as the
            catalogue has others.
        draw: ``fresh`` in every round, or ``sticky``.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.BOUNDED,)
    gives: ClassVar[ValueStage] = ValueStage.BOUNDED
    guard: Literal["decoys"] = "decoys"
    rows: int = Field(default=1024, ge=1, le=1 << 20, strict=True)
    draw: Literal["fresh", "sticky"] = "sticky"


class Laplace(Guard):
    """Add Laplace noise to every number that leaves, drawn on a grid (no low bits are left over).

    With a fixed scale λ and every number within ±δ, epsilon = 2 δ / λ for one number of one
    message; D numbers together spend D times that. The plan says both.

    Attributes:
        scale: λ; ``dynamic``: times the mean absolute value of the field it is added to.
        how: ``fixed``, or ``dynamic``: the scale then depends on the data, and there is no epsilon
            (O21).
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.BOUNDED,)
    gives: ClassVar[ValueStage] = ValueStage.NOISED
    guard: Literal["laplace"] = "laplace"
    scale: float = Field(default=0.2, gt=0, le=1e6)
    how: Literal["fixed", "dynamic"] = "fixed"

    def steps(self, bound: float) -> float:
        """Return λ in grid steps; raises ValueError beyond what is drawn: epsilon rests on it."""
        step = bound / LEVELS
        if not MIN_SCALE <= self.scale / step <= MAX_SCALE:
            raise ValueError(
                f"laplace: a scale of {self.scale:g} cannot be drawn for numbers within "
                f"{bound:g}; choose one between {MIN_SCALE * step:g} and {MAX_SCALE * step:g}, or "
                "change the bound of 'clip'"
            )
        return self.scale / step


GUARDS = (Decoys, Laplace)
