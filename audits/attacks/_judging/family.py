"""Rows of a report judged together: which null controls are biased (see `nulls`)."""

from __future__ import annotations

from collections.abc import Sequence

from audits.attacks._judging import nulls
from audits.attacks._shared.models import AttackRow
from audits.attacks._shared.verdicts import Figures, invalid, misplaced, null_p

__all__ = ["biased", "settled"]

_NAMES = ("prior", "raw", "null", "protected", "raw_gap", "gap")


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
    values = {name: value for name in _NAMES if (value := getattr(row, name)) is not None}
    return Figures.of(row.chance, values) if len(values) == len(_NAMES) and row.chance else None


def _p(row: AttackRow, figures: Figures | None) -> float:
    if figures is None:
        return 1.0
    return null_p(figures, row.null_side, nulls.trials(row.n_pos, row.n_neg, figures.null.n))


def settled(rows: Sequence[AttackRow]) -> tuple[AttackRow, ...]:
    """Return the rows of a report, INVALID where their null controls are biased."""
    return tuple(
        _unfair(row) if wrong and not row.exact else row
        for row, wrong in zip(rows, biased(rows), strict=True)
    )


def _unfair(row: AttackRow) -> AttackRow:
    figures = _figures(row)
    if figures is None:  # of one without figures nothing is said, so it is not biased
        return row
    reason = f"{invalid(figures, row.null_side)}."
    gone = {"verdict": "INVALID", "reason": reason, "needed_n": None, "detectable": ""}
    return row.model_copy(update=gone)
