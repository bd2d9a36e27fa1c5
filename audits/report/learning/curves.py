"""Training curves: the scores of ``metrics.jsonl``, as totals over a cohort gave them (O28)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field as Setting

from protocols.strict import Strict

MOST_POINTS, MOST_CURVES = 120, 12
"""Points of one curve, and curves of one report; ``metrics.jsonl`` has all."""
_LONGEST = 60  # characters of a name
_LAST_ROUND = 1 << 53


class Point(Strict):
    """One score after one round."""

    round: int = Setting(description="0: before the first")
    value: str = Setting(description="decimal text")


class Curve(Strict):
    """One score over the rounds; of many rounds every so many-th, and the last."""

    name: str = Setting(description="as in metrics.jsonl, for example `val_accuracy`")
    points: tuple[Point, ...] = Setting(description="by round, at most 120")


def curves(rows: Sequence[Mapping[str, Any]]) -> tuple[Curve, ...]:
    """Return the curves of ``metrics.jsonl``, by name.

    What is no score is left out: a line without a later round than the line before, an entry that
    is no finite number, a name that cannot be printed.

    Args:
        rows: its lines, of which anybody may have written anything.
    """
    found: dict[str, list[Point]] = {}
    before = -1
    for row in rows:
        round = row.get("round")
        if type(round) is not int or not before < round < _LAST_ROUND:
            continue
        before = round
        for name, value in row.items():
            if name != "round" and _named(name) and (text := _number(value)):
                found.setdefault(name, []).append(Point(round=round, value=text))
    names = sorted(found)[:MOST_CURVES]
    return tuple(Curve(name=name, points=_thinned(found[name])) for name in names)


def _named(name: str) -> bool:
    return bool(name) and len(name) <= _LONGEST and name.isprintable()


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if isinstance(value, int):
        return str(value) if abs(value) < _LAST_ROUND else ""
    return f"{value:.6g}" if math.isfinite(value) else ""


def _thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    step = max(1, -(-len(points) // (MOST_POINTS - 1)))
    return (*points[:-1:step], points[-1])
