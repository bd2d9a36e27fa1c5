"""What an attack is, and what it brings back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from math import ceil
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from audits.attacks._methods.statistics import Bootstrap, Interval
from audits.attacks._shared.exposed import ALONE
from audits.attacks._shared.material import Material
from audits.attacks._shared.models import Claim, Evidence, Value, Verdict, bucket
from audits.attacks._shared.rules import NullSide, Rule

Drawn = TypeVar("Drawn")


@dataclass(frozen=True, repr=False)
class Samples:
    """What an attack measured on one kind of payload, one entry per unit.

    Attributes:
        payload: ``P01`` to ``P21``.
        what: which message or variant of the question, short.
        units: the client of each entry; a client may stand in several (rounds).
        chance: the score of a random guess.
        prior: per unit, of the best attacker without the payload.
        raw: of the attack on the message before protection.
        null: of the same attack on another client's message, or on noise.
        protected: of the attack on what the receiver learnt.
        rounds: looked at; empty: the whole run.
        positives, negatives: records or trials behind the scores.
        note: what a reader must know besides, one sentence.
        metric, margin: instead of the attack's own; None: the attack's.
        gate: likewise.
        exact: the values are facts and no estimates (a rank, a count): what counts is the worst
            unit, and the interval is the value.
        null_side: ``above``: a null below chance is no sign of bias, and one above both chance and
            prior is (see `audits.attacks.label_count` for when this is right).
        bounds: of the metric; intervals are cut there.
        replicas: audit replicas drawn of each client, whose entries stand beside its own.
        alone: of the run's own draw alone, beside a row with replicas; stands where it is FAIL.
        doubt: why nobody but the attacker vouches for what was looked at; then no PASS rests on it.
        client_clusters: False if `units` are no clients (mechanisms, sums): the row counts none.
    """

    payload: str
    what: str
    units: tuple[str, ...]
    chance: float
    prior: Array
    raw: Array
    null: Array
    protected: Array
    rounds: tuple[int, ...] = ()
    positives: int = 0
    negatives: int = 0
    note: str = ""
    metric: str | None = None
    margin: float | None = None
    gate: float | None = None
    exact: bool = False
    null_side: NullSide = "both"
    bounds: tuple[float, float] = (0.0, 1.0)
    client_clusters: bool = True
    replicas: int = 0
    alone: bool = False
    doubt: str = ""

    def __post_init__(self) -> None:
        for name in ("prior", "raw", "null", "protected"):
            found = np.asarray(getattr(self, name), dtype=np.float64)
            if found.shape != (len(self.units),) or not np.isfinite(found).all():
                raise ValueError(
                    f"an attack gave no finite {name} score for each unit; a score that cannot be "
                    "computed belongs into NotApplicable with its reason"
                )
            object.__setattr__(self, name, found)
        if self.exact and np.ptp(self.prior) > 0:
            raise ValueError("facts are held against one prior; ask one question for each prior")
        if self.replicas and (self.exact or not self.client_clusters):
            raise ValueError("replicas are of clients' estimates; facts are what they are")
        if not self.units:
            raise ValueError("an attack gave samples of nobody; say NotApplicable and why")


@dataclass(frozen=True)
class NotApplicable:
    """An attack, or one of its questions, that has no answer here, with the reason in words.

    Attributes:
        arises: False: nothing of that kind leaves. True: the question does arise, and was not
            looked at: the verdict is NOT_TESTED.
        reason: one sentence; never empty.
        payload: of which kind; empty: of all that the attack is about.
        what: which message or variant.
    """

    reason: str
    payload: str = ""
    what: str = ""
    arises: bool = False

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError("an attack that is not applicable must say why; give the reason")


def own_too(
    drawn: Sequence[Drawn], rows: Callable[[Sequence[Drawn]], Sequence[Samples | NotApplicable]]
) -> list[Samples | NotApplicable]:
    """Return rows with replicas, and after them those of the run's own draw alone.

    Replicas take luck out, and what happened in the run is no luck: where a split was no draw, as
    one that was published, a leak of its records would vanish among seven draws of others.

    Args:
        drawn: trials of the run's own draw, then those of each replica.
        rows: makes rows of draws.
    """
    own = [row for row in rows(drawn[:1]) if isinstance(row, Samples)] if len(drawn) > 1 else []
    apart = [replace(row, what=f"{row.what}, {ALONE}", alone=True) for row in own]
    return [*rows(drawn), *apart]


@dataclass(frozen=True, repr=False)
class Findings:
    """What one attack found: a row per question, and claims that it held against evidence."""

    rows: tuple[Samples | NotApplicable, ...]
    claims: tuple[Claim, ...] = ()


class Attack(Protocol):
    """One attack; its file defines ``ATTACK``.

    Attributes:
        id: ``A04``.
        name: as the command line calls it.
        question: in plain words.
        payloads: the payload ids (`audit explain P05`) that it can look at.
        metric: name of its score; larger is worse.
        margin: how far above the prior a protected payload may be (an equivalence margin).
        gate: how far above the prior the raw control must be, or the attack is too weak to tell.
        rules: by which its scores are judged, and no others; the first has its metric, margin and
            gate.
        needs_capture: whether it needs captured rounds.
    """

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def question(self) -> str: ...
    @property
    def payloads(self) -> tuple[str, ...]: ...
    @property
    def metric(self) -> str: ...
    @property
    def margin(self) -> float: ...
    @property
    def gate(self) -> float: ...
    @property
    def rules(self) -> tuple[Rule, ...]: ...
    @property
    def needs_capture(self) -> bool: ...

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack.

        Args:
            material: the run.
            rng: all the chance there is; seeded from the run's ledger heads.
            profile: ``quick`` or ``default``.
        """


# --- The figures that a verdict rests on ---


@dataclass(frozen=True)
class Figures:
    """What a verdict rests on, as it is written down.

    Attributes:
        chance: of a random guess.
        prior, raw, null, protected: of the attack, see `audits.attacks._shared.verdicts.Samples`.
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


# --- Whether null controls sit where they should, over all rows of a report together ---
#
# A row's null control is an estimate, so even a sound one lies outside its own 95 % interval in one
# row of twenty. A report has dozens of rows. So the controls of a report are tested together, by
# Holm's procedure (Scandinavian Journal of Statistics 1979), which needs no independence: a report
# whose controls are all sound holds an INVALID row with a chance of `FAMILY` at most.
#
# A control is biased by the larger of two p-values, as either alone can be too small by chance:
#
# * Student's t of the clients' means, by the standard error that the interval was made of. Of few
#   clients whose scores happen to be alike this error is near 0.
# * The normal approximation by the records: a mean of independent scores in [0, 1] is not steadier
#   than their number allows. Records of one client may depend on each other, which only the first
#   one sees.
#
# Both are made of what is written down in the row, so that whoever reads a report makes them again.

FAMILY = 1e-4
"""Chance of at least one INVALID row in a report whose null controls are sound."""
LEVEL = 0.95
_RANK = 1.0 / 12.0  # variance of a rank in [0, 1], what an AUC is the mean of

Array = npt.NDArray[np.float64]


def trials(positives: int, negatives: int, clients: int) -> float:
    """Return how many independent records a mean rests on.

    Args:
        positives: records or trials of the one kind, as the row counts them.
        negatives: of the other.
        clients: what it is over, where no records are counted.
    """
    sides = [n for n in (positives, negatives) if n > 0] or [max(clients, 1)]
    return 1.0 / sum(1.0 / n for n in sides)


def p_value(
    value: npt.ArrayLike,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    clients: int,
    against: npt.ArrayLike,
    *,
    above: bool,
    records: float,
) -> Array:
    """Return the p-value of the claim that a null control sits where it should.

    All but `clients` and `records` may be arrays of one shape.

    Args:
        value: of the control.
        low: lower end of its 95 % interval.
        high: upper end.
        clients: behind it; at least 2.
        against: where it should be, or what it should not exceed.
        above: only a control above `against` is a sign of bias.
        records: from `trials`.
    """
    from scipy.special import ndtr, stdtr, stdtrit

    middle, limit = np.asarray(value), np.asarray(against)
    away = middle - limit if above else np.abs(middle - limit)
    wide = np.where(middle > limit, middle - np.asarray(low), np.asarray(high) - middle)
    error = wide / stdtrit(clients - 1, (1.0 + LEVEL) / 2)
    room = np.clip(limit * (1.0 - limit), 0.0, _RANK)
    sides = 1.0 if above else 2.0
    by_clients = stdtr(clients - 1, -_ratio(away, error))
    by_records = ndtr(-_ratio(away, np.sqrt(room / records)))
    larger = sides * np.maximum(by_clients, by_records)
    return np.asarray(np.minimum(larger, 1.0), dtype=np.float64)


def gain_p(
    gap: tuple[npt.ArrayLike, npt.ArrayLike],
    excess: tuple[npt.ArrayLike, npt.ArrayLike],
    scores: tuple[npt.ArrayLike, npt.ArrayLike],
    clients: int,
    records: float,
) -> Array:
    """Return the p-value of the claim that a protected message tells nothing.

    The largest of three: Student's t of what clients' scores are above the null control's, and of
    what they are above the prior, each client by client; and the normal approximation by records of
    the first, as both scores are means over so many. A split that is no draw lifts null control and
    score alike, so chance is not what they are held against.

    All but `clients` and `records` may be arrays of one shape.

    Args:
        gap: protected minus prior, and the lower end of its 95 % interval.
        excess: protected minus null, likewise.
        scores: protected and null.
        clients: behind them; at least 2.
        records: from `trials`.
    """
    from scipy.special import ndtr, stdtr, stdtrit

    wide = stdtrit(clients - 1, (1.0 + LEVEL) / 2)
    by_clients = [
        stdtr(clients - 1, -_ratio(np.asarray(value), (np.asarray(value) - low) / wide))
        for value, low in (gap, excess)
    ]
    spread = np.sqrt(sum(map(_room, scores)) / records)
    by_records = ndtr(-_ratio(np.asarray(excess[0]), spread))
    return np.asarray(np.maximum.reduce([*by_clients, by_records]), dtype=np.float64)


def more_needed(p: float, level: float, records: int) -> int:
    """Return of how many records, or clients, a gain of that size would have this p-value.

    Args:
        p: that so many gave; below 1/2.
        level: wanted.
        records: behind `p`.
    """
    from scipy.special import ndtri

    return int(np.ceil(records * max(float(ndtri(level) / ndtri(p)), 1.0) ** 2))


def _room(score: npt.ArrayLike) -> Array:
    """Return the largest variance of what a score is the mean of; of no share, that of a rank."""
    share = np.asarray(score, dtype=np.float64)
    inside = (share > 0.0) & (share < 1.0)
    return np.where(inside, np.minimum(share * (1.0 - share), _RANK), _RANK)


def _ratio(away: Array, error: Any) -> Array:
    """Return away / error; without any error infinity, or 0 where nothing is away."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(away > 0, away / np.asarray(error), np.minimum(away, 0.0))
    return np.asarray(found, dtype=np.float64)


def holm(found: Sequence[float], level: float = FAMILY) -> list[bool]:
    """Return which p-values Holm's procedure rejects, at a family-wise level."""
    rejected = [False] * len(found)
    for done, place in enumerate(sorted(range(len(found)), key=found.__getitem__)):
        if found[place] >= level / (len(found) - done):
            break
        rejected[place] = True
    return rejected


# --- What a PASS could have missed: the smallest gain over the prior that would have been found
# ---

POWER = 0.95
"""Chance with which a gain of that size is found."""


def detectable(gap: Interval, raw_gap: Interval, margin: float, exact: bool) -> float:
    """Return the smallest gain that would have been a FAIL with the chance `POWER`.

    Of estimates: the true gain at which the lower end of the interval lies above the margin, by the
    noncentral t distribution, with as many clients that differ as much as these did (minimum
    detectable effect). Of facts: the gain of the raw control, which was planted and found in every
    unit; nothing smaller was tried.

    Args:
        gap: protected minus prior, over at least two clients where it is an estimate.
        raw_gap: raw minus prior.
        margin: see `audits.attacks._shared.verdicts.judge`.
        exact: facts, not estimates.
    """
    from scipy.special import nctdtrinc, stdtrit

    if exact:
        return raw_gap.low
    df = gap.n - 1
    cut = float(stdtrit(df, (1.0 + LEVEL) / 2))
    wide = max(gap.high - gap.value, gap.value - gap.low)
    return margin + float(nctdtrinc(df, 1.0 - POWER, cut)) * wide / cut


# --- Why a row has its verdict, in words ---

Cause = Literal["alone", "biased", "weak", "leak", "within", "sample"]
_SLACK = 1e-9  # above rounding, so that equal bounds are equal on every machine
_MOST_CLIENTS = 100_000  # beyond it, "more clients" is no advice


def limit_of(figures: Figures, null_side: NullSide) -> float:
    """Return what the null control should not be above, or should be equal to."""
    above = null_side == "above"
    return max(figures.chance, figures.prior.value) if above else figures.chance


def reason_of(cause: Cause, found: Figures, margin: float, gate: float, null_side: NullSide) -> str:
    """Say in words why figures give their verdict."""
    lead, gap = found.raw_gap, found.gap
    seen = f"{found.protected.value:.3f} is {_beside(gap)}"
    if cause == "alone":
        return "sample: one client has no interval; nothing can be said of others like it"
    if cause == "biased":
        what = "an attacker without the message" if null_side == "above" else "chance"
        return (
            f"the null control reads {span(found.null)}, where {what} reaches "
            f"{limit_of(found, null_side):.3f}, further off than luck takes it: the attack or the "
            "split of its records is biased, so its other figures mean nothing"
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
        if gap.low > 0 and gap.low != gap.high:
            return f"{seen}, which is within the margin {margin:g}"
        return f"no evidence above an attacker without the message{_within(gap)}"
    needed = needed_for(gap, margin)
    more = f"about {needed} clients would be needed" if needed else "more clients would hardly help"
    return f"sample: {seen}, on both sides of the margin {margin:g}; {more}"


def above_reason(found: Figures, level: Evidence, needed: int) -> str:
    """Say in words that a message tells something, and how sure that is.

    Args:
        found: of the row.
        level: how sure.
        needed: records, or clients, with which the same gain would be beyond doubt.
    """
    about = _beside(found.gap)
    if level == "there":
        return f"leakage is there, about this much: {about}; luck does this in 1 report of 1,000"
    return (
        f"signs of leakage: {about}; luck does this in 1 report of 20, so test with more records "
        f"(n = {needed:,})"
    )


def needed_for(gap: Interval, limit: float) -> int | None:
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
    far = f"{found.value:.3f}" if gap.low == gap.high else span(found)
    return f"{far} {'below' if below else 'above'} an attacker without the message"


def _within(gap: Interval) -> str:
    """Say where the interval of a PASS ends; of facts, and below the prior, there is no more."""
    if gap.high < 0.0005:
        return "" if gap.low == gap.high else ": the whole interval ends below it"
    return f": the interval ends {gap.high:.3f} above it"


def span(found: Interval) -> str:
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


# --- From measured values to a verdict, in this order (docs/adr/0070-null-controls-together.md)
# ---
#
# 1. INVALID: the null control does not sit at chance, so the attack or the data split is biased. Of
#    estimates this is told over all rows of a report together (`audits.attacks._shared.together`).
# 2. INCONCLUSIVE (weak attack): on the raw message the attack does not beat the prior by its gate.
#    A low score on a protected message then says nothing about the protection.
# 3. FAIL: the protected message lets the attack beat the prior by more than the margin.
# 4. PASS: it does not, and the interval shows it. This is a test of equivalence; that a leak was
#    not significant would not be enough.
# 5. INCONCLUSIVE (sample): too few clients to tell.
#
# Of rows that are INCONCLUSIVE by 2 or 5, over two clients or more, those become ABOVE_PRIOR in
# which the protected message tells more than chance allows, over all rows of a report together
# (`audits.attacks._shared.together`).
#
# The prior is estimated too, from the same clients. So rules 2, 3 and 4 look at the differences to
# it, client by client, and at the interval of their mean: what clients have in common (one is easy
# to guess, message or not) cancels, and a prior that came out too high by chance widens the
# interval instead of turning a leak into a PASS. With a prior that is a constant these are the
# rules as A.2 writes them.
#
# The figures are rounded before they are judged, as they are written down: means to the nearest of
# four places, ends of intervals outwards, facts against the run. So the verdicts of a report are a
# function of its rows, and whoever reads them can make them again (:func:`verdict_of`).

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
        p = null_p(found, side, trials(*counts, n))
        odd, biased = p < 1.0 - LEVEL, p < FAMILY if biased is None else biased
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
        records: from `audits.attacks._shared.verdicts.trials`.
    """
    null = figures.null
    if null.n < 2:
        return 1.0
    limit, above = limit_of(figures, null_side), null_side == "above"
    facts = (null.value, null.low, null.high, null.n, limit)
    return float(p_value(*facts, above=above, records=records))


def power_of(figures: Figures, margin: float, *, exact: bool) -> str:
    """Return the power of a PASS as decimal text, see `audits.attacks._shared.verdicts`."""
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
