"""From measured values to a verdict, in this order (docs/adr/0070-null-controls-together.md).

1. INVALID: the null control does not sit at chance, so the attack or the data split is biased. Of
   estimates this is told over all rows of a report together (`audits.attacks._judging.family`).
2. INCONCLUSIVE (weak attack): on the raw message the attack does not beat the prior by its gate. A
   low score on a protected message then says nothing about the protection.
3. FAIL: the protected message lets the attack beat the prior by more than the margin.
4. PASS: it does not, and the interval shows it. This is a test of equivalence; that a leak was not
   significant would not be enough.
5. INCONCLUSIVE (sample): too few clients to tell.

Of rows that are INCONCLUSIVE by 2 or 5, over two clients or more, those become ABOVE_PRIOR in which
the protected message tells more than chance allows, over all rows of a report together
(`audits.attacks._judging.family`).

The prior is estimated too, from the same clients. So rules 2, 3 and 4 look at the differences to
it, client by client, and at the interval of their mean: what clients have in common (one is easy to
guess, message or not) cancels, and a prior that came out too high by chance widens the interval
instead of turning a leak into a PASS. With a prior that is a constant these are the rules as A.2
writes them.

The figures are rounded before they are judged, as they are written down: means to the nearest of
four places, ends of intervals outwards, facts against the run. So the verdicts of a report are a
function of its rows, and whoever reads them can make them again (:func:`verdict_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np

from audits.attacks._judging import nulls
from audits.attacks._judging.figures import Figures
from audits.attacks._judging.power import detectable
from audits.attacks._judging.reasons import Cause, limit_of, needed_for, reason_of, span
from audits.attacks._methods.statistics import Bootstrap, Interval
from audits.attacks._shared.models import Value, Verdict, bucket
from audits.attacks._shared.rules import NullSide
from audits.attacks._shared.samples import Samples

__all__ = [
    "Figures",
    "Judgement",
    "decimal",
    "invalid",
    "judge",
    "misplaced",
    "null_p",
    "power_of",
    "value",
    "verdict_of",
]

_PLACES = Decimal("0.0001")

_VERDICTS: Mapping[Cause, Verdict] = {
    "alone": "INCONCLUSIVE",
    "biased": "INVALID",
    "weak": "INCONCLUSIVE",
    "leak": "FAIL",
    "within": "PASS",
    "sample": "INCONCLUSIVE",
}


@dataclass(frozen=True)
class Judgement:
    """A verdict, why, and the figures that it rests on.

    Attributes:
        saved: by the names of `audits.attacks._shared.models.FIGURES`, as they are written down.
        values: the same as numbers.
        chance: decimal text.
        needed: about how many clients would decide it; None if that is no help or not needed.
        detectable: beside PASS, the smallest gain that would have been found; else empty.
    """

    verdict: Verdict
    reason: str
    saved: Mapping[str, Value]
    values: Mapping[str, Interval]
    chance: str
    needed: int | None = None
    detectable: str = ""


def judge(
    samples: Samples,
    rng: np.random.Generator,
    *,
    margin: float,
    gate: float,
    biased: bool | None = None,
) -> Judgement:
    """Return the verdict on one question.

    Args:
        samples: what the attack measured.
        rng: draws the bootstrap.
        margin: how far above the prior a protected message may be.
        gate: how far above the prior the raw control must be.
        biased: whether the null control is; None: as if the row stood alone in its report.
    """
    draws, chance = Bootstrap(samples.units, rng), decimal(samples.chance)
    saved = _facts(samples) if samples.exact else _estimates(samples, draws)
    found = Figures.of(chance, saved)
    margin, gate = float(decimal(margin)), float(decimal(gate))
    n, side = found.protected.n, samples.null_side
    if samples.exact:
        odd = biased = misplaced(found, side)
    else:
        counts = bucket(samples.positives), bucket(samples.negatives)
        p = null_p(found, side, nulls.trials(*counts, n))
        odd, biased = p < 1.0 - nulls.LEVEL, p < nulls.FAMILY if biased is None else biased
    cause = _cause(found, margin, gate, samples.exact, n, biased=biased)
    reason = reason_of(cause, found, margin, gate, side)
    if odd and cause not in ("alone", "biased"):
        reason += f"; the null control reads {span(found.null)}, as one row in twenty does by luck"
    if cause in ("weak", "sample") and found.gap.low > 0:
        reason += f"; what was received lies {span(found.gap)} above it, as by luck one row in 40"
    needed = needed_for(found.gap, margin) if cause == "sample" else None
    power = power_of(found, margin, exact=samples.exact) if cause == "within" else ""
    return Judgement(_VERDICTS[cause], reason, saved, found.values, chance, needed, power)


def verdict_of(
    figures: Figures, margin: float, gate: float, exact: bool, n: int, *, biased: bool
) -> Verdict:
    """Return the verdict that figures give, by the rules above and in their order.

    Args:
        figures: as they are written down.
        margin: see :func:`judge`.
        gate: likewise.
        exact: facts, not estimates.
        n: clients behind the figures; of one, only facts can be judged.
        biased: whether the null control is.
    """
    return _VERDICTS[_cause(figures, margin, gate, exact, n, biased=biased)]


def _cause(
    figures: Figures, margin: float, gate: float, exact: bool, n: int, *, biased: bool
) -> Cause:
    gap = figures.gap
    if n < 2 and not exact:
        return "alone"
    if biased:
        return "biased"
    if figures.raw_gap.low < gate:
        return "weak"
    if gap.low > margin:
        return "leak"
    return "within" if gap.high <= margin else "sample"


def misplaced(figures: Figures, null_side: NullSide) -> bool:
    """Tell whether the null control of facts is not where it should be."""
    null, limit = figures.null, limit_of(figures, null_side)
    return null.low > limit if null_side == "above" else not null.low <= limit <= null.high


def null_p(figures: Figures, null_side: NullSide, records: float) -> float:
    """Return the p-value of an estimate's null control; 1 of one client.

    Args:
        figures: as they are written down.
        null_side: ``above``: a null control below chance is no sign of bias.
        records: from `audits.attacks._judging.nulls.trials`.
    """
    null = figures.null
    if null.n < 2:
        return 1.0
    limit, above = limit_of(figures, null_side), null_side == "above"
    facts = (null.value, null.low, null.high, null.n, limit)
    return float(nulls.p_value(*facts, above=above, records=records))


def power_of(figures: Figures, margin: float, *, exact: bool) -> str:
    """Return the power of a PASS as decimal text, see `audits.attacks._judging.power`."""
    return decimal(_rounded(detectable(figures.gap, figures.raw_gap, margin, exact), ROUND_CEILING))


def invalid(figures: Figures, null_side: NullSide) -> str:
    """Say why figures whose null control is biased mean nothing."""
    return reason_of("biased", figures, 0.0, 0.0, null_side)


def _estimates(samples: Samples, draws: Bootstrap) -> dict[str, Value]:
    low, high = samples.bounds
    found = {
        name: draws.interval(getattr(samples, name), samples.bounds)
        for name in ("prior", "raw", "null", "protected")
    }
    wide = (low - high, high - low)
    found["raw_gap"] = draws.interval(samples.raw - samples.prior, wide)
    found["gap"] = draws.interval(samples.protected - samples.prior, wide)
    found["excess"] = draws.interval(samples.protected - samples.null, wide)
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
        "excess": most(samples.protected - samples.null),
    }


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
