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
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from audits.attacks._material import Samples
from audits.attacks._statistics import Bootstrap, Interval
from audits.attacks.models import Value, Verdict

__all__ = ["Judgement", "decimal", "judge", "value"]

_SLACK = 1e-9  # above rounding, so that equal bounds are equal on every machine
_MOST_CLIENTS = 100_000  # beyond it, "more clients" is no advice


@dataclass(frozen=True)
class Judgement:
    """A verdict, why, and the intervals that it rests on.

    Attributes:
        values: ``prior``, ``raw``, ``null``, ``protected``; ``raw_gap`` and ``gap``: raw and
            protected minus prior, client by client.
        needed: about how many clients would decide it; None if that is no help or not needed.
    """

    verdict: Verdict
    reason: str
    values: Mapping[str, Interval]
    needed: int | None = None


def judge(samples: Samples, rng: np.random.Generator, *, margin: float, gate: float) -> Judgement:
    """Return the verdict on one question.

    Args:
        samples: what the attack measured.
        rng: draws the bootstrap.
        margin: how far above the prior a protected message may be.
        gate: how far above the prior the raw control must be.
    """
    draws = Bootstrap(samples.units, rng)
    values = _facts(samples) if samples.exact else _estimates(samples, draws)
    verdict, reason, needed = _rules(samples, values, margin, gate)
    return Judgement(verdict, reason, values, needed)


def _estimates(samples: Samples, draws: Bootstrap) -> dict[str, Interval]:
    low, high = samples.bounds
    found = {
        name: draws.interval(getattr(samples, name), samples.bounds)
        for name in ("prior", "raw", "null", "protected")
    }
    wide = (low - high, high - low)
    found["raw_gap"] = draws.interval(samples.raw - samples.prior, wide)
    found["gap"] = draws.interval(samples.protected - samples.prior, wide)
    return found


def _facts(samples: Samples) -> dict[str, Interval]:
    """Return the worst unit of each: largest, but for the raw control, which must hold for all."""
    n = len(set(samples.units))

    def fact(found: float) -> Interval:
        return Interval(found, found, found, n)

    return {
        "prior": fact(float(samples.prior.max())),
        "raw": fact(float(samples.raw.min())),
        "null": fact(float(samples.null.max())),
        "protected": fact(float(samples.protected.max())),
        "raw_gap": fact(float((samples.raw - samples.prior).min())),
        "gap": fact(float((samples.protected - samples.prior).max())),
    }


def _rules(
    samples: Samples, values: Mapping[str, Interval], margin: float, gate: float
) -> tuple[Verdict, str, int | None]:
    prior, raw, seen = (values[name] for name in ("prior", "raw", "protected"))
    lead, gap = values["raw_gap"], values["gap"]
    if seen.n < 2 and not samples.exact:
        why = "sample: one client has no interval; nothing can be said of others like it"
        return "INCONCLUSIVE", why, None
    if (bias := _bias(samples, prior, values["null"])) is not None:
        return "INVALID", bias, None
    if lead.low < gate - _SLACK:
        why = (
            f"weak attack: on the unprotected message it reaches {raw.value:.3f}, which is "
            f"{_span(lead)} above an attacker without it, and {gate:g} is needed; a low score on "
            "the protected message proves nothing"
        )
        return "INCONCLUSIVE", why, None
    found = f"{seen.value:.3f} is {_span(gap)} above an attacker without the message"
    if gap.low > margin + _SLACK:
        return "FAIL", f"{found}; the margin is {margin:g}", None
    if gap.high <= margin + _SLACK:
        why = f"no evidence above an attacker without the message, within +{max(gap.high, 0):.3f}"
        return "PASS", why, None
    needed = _needed(gap, margin)
    more = f"about {needed} clients would be needed" if needed else "more clients would hardly help"
    return (
        "INCONCLUSIVE",
        f"sample: {found}, on both sides of the margin {margin:g}; {more}",
        needed,
    )


def _bias(samples: Samples, prior: Interval, null: Interval) -> str | None:
    """Say why the null control shows a bias; None if it does not."""
    if samples.null_side == "above":
        limit, what = max(samples.chance, prior.value), "an attacker without the message"
        return None if null.low <= limit + _SLACK else _biased(null, limit, what)
    inside = null.low - _SLACK <= samples.chance <= null.high + _SLACK
    return None if inside else _biased(null, samples.chance, "chance")


def _biased(null: Interval, limit: float, what: str) -> str:
    return (
        f"the null control reads {_span(null)}, where {what} reaches {limit:.3f}: the attack or "
        "the split of its records is biased, so its other figures mean nothing"
    )


def _needed(gap: Interval, limit: float) -> int | None:
    """Return how many clients would move the nearer end of the interval to the limit."""
    away = abs(gap.value - limit)
    half = gap.high - gap.value if gap.value <= limit else gap.value - gap.low
    if away <= _SLACK:
        return None
    needed = max(math.ceil(gap.n * (half / away) ** 2), gap.n + 1)
    return needed if needed <= _MOST_CLIENTS else None


def _span(found: Interval) -> str:
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


def decimal(number: float) -> str:
    """Return a number as decimal text with four places at most."""
    text = f"{round(number, 4):.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def value(found: Interval) -> Value:
    """Return an interval as data: four places, its ends rounded outwards."""
    tidy = replace(found, low=round(found.low, 9), high=round(found.high, 9))
    low, high = math.floor(tidy.low * 1e4) / 1e4, math.ceil(tidy.high * 1e4) / 1e4
    middle = min(max(round(found.value, 4), low), high)
    return Value(value=decimal(middle), low=decimal(low), high=decimal(high), n=found.n)
