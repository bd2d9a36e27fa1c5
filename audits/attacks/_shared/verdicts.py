"""From measured values to one of six verdicts, in the order of AUDITS.md A.2.

1. INVALID: the null control does not sit at chance, so the attack or the data split is biased.
2. INCONCLUSIVE (weak attack): on the raw message the attack does not beat the prior by its gate. A
   low score on a protected message then says nothing about the protection.
3. FAIL: the protected message lets the attack beat the prior by more than the margin.
4. PASS: it does not, and the interval shows it. This is a test of equivalence; that a leak was not
   significant would not be enough.
5. INCONCLUSIVE (sample): too few clients to tell.

The prior is estimated too, from the same clients. So rules 2, 3 and 4 look at the differences to
it, client by client, and at the interval of their mean: what clients have in common (one is easy to
guess, message or not) cancels, and a prior that came out too high by chance widens the interval
instead of turning a leak into a PASS. With a prior that is a constant these are the rules as A.2
writes them.

The figures are rounded before they are judged, as they are written down: means to the nearest of
four places, ends of intervals outwards, facts against the run. So the verdict of a row is a
function of the row, and whoever reads one can make its verdict again (:func:`verdict_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from math import ceil
from typing import Literal

import numpy as np

from audits.attacks._methods.statistics import Bootstrap, Interval
from audits.attacks._shared.models import Value, Verdict
from audits.attacks._shared.rules import NullSide
from audits.attacks._shared.samples import Samples

__all__ = ["Figures", "Judgement", "decimal", "judge", "value", "verdict_of"]

_SLACK = 1e-9  # above rounding, so that equal bounds are equal on every machine
_MOST_CLIENTS = 100_000  # beyond it, "more clients" is no advice
_PLACES = Decimal("0.0001")

_Cause = Literal["alone", "biased", "weak", "leak", "within", "sample"]
_VERDICTS: Mapping[_Cause, Verdict] = {
    "alone": "INCONCLUSIVE",
    "biased": "INVALID",
    "weak": "INCONCLUSIVE",
    "leak": "FAIL",
    "within": "PASS",
    "sample": "INCONCLUSIVE",
}


@dataclass(frozen=True)
class Figures:
    """What a verdict rests on, as it is written down.

    Attributes:
        chance: of a random guess.
        prior, raw, null, protected: of the attack, see `audits.attacks._shared.samples.Samples`.
        raw_gap, gap: raw and protected minus prior, client by client.
    """

    chance: float
    prior: Interval
    raw: Interval
    null: Interval
    protected: Interval
    raw_gap: Interval
    gap: Interval

    @classmethod
    def of(cls, chance: str, values: Mapping[str, Value]) -> Figures:
        """Return the figures of a row.

        Args:
            chance: decimal text.
            values: all six, by name.
        """
        read = {
            name: Interval(float(v.value), float(v.low), float(v.high), v.n)
            for name, v in values.items()
        }
        return cls(chance=float(chance), **read)

    @property
    def values(self) -> dict[str, Interval]:
        """Return the six values by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "chance"}


@dataclass(frozen=True)
class Judgement:
    """A verdict, why, and the figures that it rests on.

    Attributes:
        saved: ``prior``, ``raw``, ``null``, ``protected``; ``raw_gap`` and ``gap``: raw and
            protected minus prior, client by client; as they are written down.
        values: the same as numbers.
        chance: decimal text.
        needed: about how many clients would decide it; None if that is no help or not needed.
    """

    verdict: Verdict
    reason: str
    saved: Mapping[str, Value]
    values: Mapping[str, Interval]
    chance: str
    needed: int | None = None


def judge(samples: Samples, rng: np.random.Generator, *, margin: float, gate: float) -> Judgement:
    """Return the verdict on one question.

    Args:
        samples: what the attack measured.
        rng: draws the bootstrap.
        margin: how far above the prior a protected message may be.
        gate: how far above the prior the raw control must be.
    """
    draws, chance = Bootstrap(samples.units, rng), decimal(samples.chance)
    saved = _facts(samples) if samples.exact else _estimates(samples, draws)
    found = Figures.of(chance, saved)
    margin, gate = float(decimal(margin)), float(decimal(gate))
    n = found.protected.n
    cause = _cause(found, margin, gate, samples.null_side, samples.exact, n)
    reason = _reason(cause, found, margin, gate, samples.null_side)
    needed = _needed(found.gap, margin) if cause == "sample" else None
    return Judgement(_VERDICTS[cause], reason, saved, found.values, chance, needed)


def verdict_of(
    figures: Figures, margin: float, gate: float, null_side: NullSide, exact: bool, n: int
) -> Verdict:
    """Return the verdict that figures give, by the rules above and in their order.

    Args:
        figures: as they are written down.
        margin: see :func:`judge`.
        gate: likewise.
        null_side: ``above``: a null control below chance is no sign of bias.
        exact: facts, not estimates.
        n: clients behind the figures; of one, only facts can be judged.
    """
    return _VERDICTS[_cause(figures, margin, gate, null_side, exact, n)]


def _cause(
    figures: Figures, margin: float, gate: float, null_side: NullSide, exact: bool, n: int
) -> _Cause:
    gap = figures.gap
    if n < 2 and not exact:
        return "alone"
    if _biased(figures, null_side):
        return "biased"
    if figures.raw_gap.low < gate:
        return "weak"
    if gap.low > margin:
        return "leak"
    return "within" if gap.high <= margin else "sample"


def _biased(figures: Figures, null_side: NullSide) -> bool:
    null = figures.null
    if null_side == "above":
        return null.low > _limit(figures, null_side)
    return not null.low <= figures.chance <= null.high


def _limit(figures: Figures, null_side: NullSide) -> float:
    """Return what the null control should not be above, or should be equal to."""
    above = null_side == "above"
    return max(figures.chance, figures.prior.value) if above else figures.chance


def _estimates(samples: Samples, draws: Bootstrap) -> dict[str, Value]:
    low, high = samples.bounds
    found = {
        name: draws.interval(getattr(samples, name), samples.bounds)
        for name in ("prior", "raw", "null", "protected")
    }
    wide = (low - high, high - low)
    found["raw_gap"] = draws.interval(samples.raw - samples.prior, wide)
    found["gap"] = draws.interval(samples.protected - samples.prior, wide)
    return {name: value(interval) for name, interval in found.items()}


def _facts(samples: Samples) -> dict[str, Value]:
    """Return the worst unit of each: largest, but for the raw control, which must hold for all."""
    n = len(set(samples.units))

    def most(found: np.ndarray) -> Value:
        return _point(float(found.max()), ROUND_CEILING, n)

    def least(found: np.ndarray) -> Value:
        return _point(float(found.min()), ROUND_FLOOR, n)

    return {
        "prior": most(samples.prior),
        "raw": least(samples.raw),
        "null": most(samples.null),
        "protected": most(samples.protected),
        "raw_gap": least(samples.raw - samples.prior),
        "gap": most(samples.protected - samples.prior),
    }


def _reason(cause: _Cause, found: Figures, margin: float, gate: float, null_side: NullSide) -> str:
    """Say in words why figures give their verdict."""
    lead, gap = found.raw_gap, found.gap
    seen = f"{found.protected.value:.3f} is {_beside(gap)}"
    if cause == "alone":
        return "sample: one client has no interval; nothing can be said of others like it"
    if cause == "biased":
        what = "an attacker without the message" if null_side == "above" else "chance"
        return (
            f"the null control reads {_span(found.null)}, where {what} reaches "
            f"{_limit(found, null_side):.3f}: the attack or the split of its records is biased, so "
            "its other figures mean nothing"
        )
    if cause == "weak":
        return (
            f"weak attack: on the unprotected message it reaches {found.raw.value:.3f}, which is "
            f"{_beside(lead)}; {gate:g} above is needed, and a low score on the protected message "
            "proves nothing"
        )
    if cause == "leak":
        return f"{seen}; the margin is {margin:g}"
    if cause == "within":
        return f"no evidence above an attacker without the message{_within(gap)}"
    needed = _needed(gap, margin)
    more = f"about {needed} clients would be needed" if needed else "more clients would hardly help"
    return f"sample: {seen}, on both sides of the margin {margin:g}; {more}"


def _needed(gap: Interval, limit: float) -> int | None:
    """Return how many clients would move the nearer end of the interval to the limit."""
    away = abs(gap.value - limit)
    half = gap.high - gap.value if gap.value <= limit else gap.value - gap.low
    if away <= _SLACK:
        return None
    needed = max(ceil(gap.n * (half / away) ** 2), gap.n + 1)
    return needed if needed <= _MOST_CLIENTS else None


def _beside(gap: Interval) -> str:
    """Say how far a score is above or below the prior; a fact has no interval."""
    if gap.low == gap.high == 0:
        return "no more than an attacker without the message reaches"
    below = gap.value < 0
    found = Interval(-gap.value, -gap.high, -gap.low, gap.n) if below else gap
    far = f"{found.value:.3f}" if gap.low == gap.high else _span(found)
    return f"{far} {'below' if below else 'above'} an attacker without the message"


def _within(gap: Interval) -> str:
    """Say where the interval of a PASS ends; of facts, and below the prior, there is no more."""
    if gap.high < 0.0005:
        return "" if gap.low == gap.high else ": the whole interval ends below it"
    return f": the interval ends {gap.high:.3f} above it"


def _span(found: Interval) -> str:
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


def decimal(number: float) -> str:
    """Return a number as decimal text with four places at most."""
    text = f"{round(number, 4):.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def value(found: Interval) -> Value:
    """Return an interval as data: four places, its ends rounded outwards."""
    low, high = _rounded(found.low, ROUND_FLOOR), _rounded(found.high, ROUND_CEILING)
    middle = min(max(round(found.value, 4), low), high)
    return Value(value=decimal(middle), low=decimal(low), high=decimal(high), n=found.n)


def _point(number: float, rounding: str, n: int) -> Value:
    text = decimal(_rounded(number, rounding))
    return Value(value=text, low=text, high=text, n=n)


def _rounded(number: float, rounding: str) -> float:
    """Return a number with four places; what is nearer than 1e-9 to one of these is that one."""
    return float(Decimal(repr(round(number, 9))).quantize(_PLACES, rounding=rounding))
