"""Rows of a report judged together: which null controls are biased, which rows tell something."""

from __future__ import annotations

from collections.abc import Sequence

from audits.attacks._judging import nulls
from audits.attacks._judging.reasons import above_reason
from audits.attacks._shared.models import FIGURES, AttackRow, Evidence
from audits.attacks._shared.verdicts import Figures, invalid, misplaced, null_p

__all__ = ["LEVELS", "biased", "evidence", "settled"]

LEVELS: dict[Evidence, float] = {"there": 1e-3, "signs": 0.05}
"""Chance of at least one such row in a report in which no message tells anything; rarest first."""


def biased(rows: Sequence[AttackRow]) -> list[bool]:
    """Return for each row whether its null control is biased; False where nothing was measured.

    Facts are judged one by one, as no chance is in them. Estimates are one family.
    """
    found = [_figures(row) for row in rows]
    family = [n for n, row in enumerate(rows) if found[n] is not None and not row.exact]
    p = [_p(rows[n], found[n]) for n in family]
    wrong = dict(zip(family, nulls.holm(p), strict=True))
    return [
        wrong[n] if n in wrong else fact is not None and misplaced(fact, row.null_side)
        for n, (row, fact) in enumerate(zip(rows, found, strict=True))
    ]


def _figures(row: AttackRow) -> Figures | None:
    values = {name: value for name in FIGURES if (value := getattr(row, name)) is not None}
    return Figures.of(row.chance, values) if len(values) == len(FIGURES) and row.chance else None


def _p(row: AttackRow, figures: Figures | None) -> float:
    if figures is None:
        return 1.0
    return null_p(figures, row.null_side, nulls.trials(row.n_pos, row.n_neg, figures.null.n))


def evidence(rows: Sequence[AttackRow]) -> list[Evidence]:
    """Return for each row how sure it is that its protected message tells something.

    The rows of a report are one family (Holm), so that of a thousand sound reports one holds a row
    that reads ``there``, and of twenty one a row that reads ``signs``. Facts and rows whose null
    control is biased are in no family; whoever has one client has no spread to go by.
    """
    p = _gains(rows)
    levels = {level: nulls.holm([*p.values()], chance) for level, chance in LEVELS.items()}
    sure: dict[int, Evidence] = {}
    for level, rejected in levels.items():
        for n, found in zip(p, rejected, strict=True):
            if found:
                sure.setdefault(n, level)
    return [sure.get(n, "") for n in range(len(rows))]


def _gains(rows: Sequence[AttackRow]) -> dict[int, float]:
    """Return the place of each row of the family -> its p-value."""
    found = {}
    for n, (row, wrong) in enumerate(zip(rows, biased(rows), strict=True)):
        figures = _figures(row)
        if figures is not None and not row.exact and not wrong and figures.gap.n > 1:
            gap, excess = figures.gap, figures.excess
            found[n] = float(
                nulls.gain_p(
                    (gap.value, gap.low),
                    (excess.value, excess.low),
                    (figures.protected.value, figures.null.value),
                    gap.n,
                    nulls.trials(row.n_pos, row.n_neg, gap.n),
                )
            )
    return found


def settled(rows: Sequence[AttackRow]) -> tuple[AttackRow, ...]:
    """Return the rows of a report as they stand beside each other.

    INVALID where their null controls are biased, and ABOVE_PRIOR where they would decide nothing
    and tell something all the same.
    """
    sure, p = evidence(rows), _gains(rows)
    return tuple(
        _unfair(row) if wrong and not row.exact else _above(row, level, p.get(n, 1.0), len(p))
        for n, (row, wrong, level) in enumerate(zip(rows, biased(rows), sure, strict=True))
    )


def _above(row: AttackRow, level: Evidence, p: float, family: int) -> AttackRow:
    if row.verdict not in ("INCONCLUSIVE", "ABOVE_PRIOR") or level == row.evidence:
        return row
    figures = _figures(row)
    if figures is None:
        return row
    if not level:  # an earlier row, beside more rows than it was found with
        reason = above_reason(figures, "signs", 0).partition(":")[0] + ", not above luck any more."
        return row.model_copy(update={"verdict": "INCONCLUSIVE", "evidence": "", "reason": reason})
    records = row.n_pos + row.n_neg or figures.gap.n
    more = nulls.more_needed(p, LEVELS["there"] / family, records)
    reason = f"{above_reason(figures, level, more)}."
    return row.model_copy(update={"verdict": "ABOVE_PRIOR", "evidence": level, "reason": reason})


def _unfair(row: AttackRow) -> AttackRow:
    figures = _figures(row)
    if figures is None:  # of one without figures nothing is said, so it is not biased
        return row
    reason = f"{invalid(figures, row.null_side)}."
    blank = {"evidence": "", "needed_n": None, "detectable": ""}
    gone = {"verdict": "INVALID", "reason": reason, **blank}
    return row.model_copy(update=gone)
