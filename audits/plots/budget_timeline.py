"""Epsilon over the rounds, with the line of the budget."""

from __future__ import annotations

import math
from itertools import pairwise

from markupsafe import Markup

from audits.plots.svg import at, figure, line, text
from audits.report import words
from audits.report.sections import Spending

_TALL, _TOP = 190, 30  # pixels
_ENDLESS = "infinity"


def timeline(found: Spending, name: str) -> Markup:
    """Return the chart of one budget; points that are infinite are left out and said in words.

    Args:
        found: one unit's spending.
        name: unique in the page.
    """
    points = [(p.round, float(p.value)) for p in found.timeline if p.value != _ENDLESS]
    target = math.inf if found.target == _ENDLESS else float(found.target)
    values = [value for _, value in points] + ([target] if math.isfinite(target) else [])
    top_value = 1.15 * max(values, default=1.0) or 1.0
    last = max((p.round for p in found.timeline), default=0) or 1

    def x(round: int) -> float:
        return 2 + 96 * round / last

    def y(value: float) -> float:
        return _TOP + _TALL * (1 - value / top_value)

    parts = [line(0, y(0), 100, y(0), "grid")]
    if math.isfinite(target):
        parts += [
            line(0, y(target), 100, y(target), "budget"),
            text(0, y(target) - 6, f"budget: ε = {words.decimal(found.target)}", "value"),
        ]
    parts += [line(x(a), y(v), x(b), y(w), "curve") for (a, v), (b, w) in pairwise(points)]
    disc = Markup('<circle class="point" r="3.5"/>')
    parts += [at(x(round), y(value), disc) for round, value in points]
    endless = len(found.timeline) - len(points)
    if points:
        spent = f"spent after round {points[-1][0]}: ε = {words.decimal(repr(points[-1][1]))}"
        parts.append(text(98, y(0) - 10, spent, "value", "end"))
    parts += [
        text(2, y(0) + 18, "0", "tick"),
        text(98, y(0) + 18, str(last), "tick", "end"),
        text(50, y(0) + 18, "round", "tick", "middle"),
    ]
    description = (
        f"{words.plural(len(points), 'point')}, from round 0 to round {last}; the budget is "
        f"{words.decimal(found.target)}. {endless} of the points are infinite and not drawn."
    )
    title = f"Epsilon of {found.unit} over the rounds"
    return figure("timeline", name, title, description, _TOP + _TALL + 30, parts)
