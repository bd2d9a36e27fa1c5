"""The figures that a verdict rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from audits.attacks._methods.statistics import Interval
from audits.attacks._shared.models import Value

__all__ = ["Figures"]


@dataclass(frozen=True)
class Figures:
    """What a verdict rests on, as it is written down.

    Attributes:
        chance: of a random guess.
        prior, raw, null, protected: of the attack, see `audits.attacks._shared.samples.Samples`.
        raw_gap, gap: raw and protected minus prior, client by client.
        excess: protected minus null, likewise.
    """

    chance: float
    prior: Interval
    raw: Interval
    null: Interval
    protected: Interval
    raw_gap: Interval
    gap: Interval
    excess: Interval

    @classmethod
    def of(cls, chance: str, values: Mapping[str, Value]) -> Figures:
        """Return the figures of a row.

        Args:
            chance: decimal text.
            values: all of `FIGURES`, by name.
        """
        read = {
            name: Interval(float(v.value), float(v.low), float(v.high), v.n)
            for name, v in values.items()
        }
        return cls(chance=float(chance), **read)

    @property
    def values(self) -> dict[str, Interval]:
        """Return the values by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "chance"}
