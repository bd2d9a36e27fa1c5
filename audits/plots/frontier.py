"""What is leaked against how good the model is: a point for each thing that was tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from audits.plots.svg import at, cut, figure, line, text

__all__ = ["Point", "frontier"]

_TALL, _TOP, _LEFT, _WIDE = 300, 24, 8.0, 88.0  # pixels, pixels, per cent, per cent
_NAME = 28  # characters
_STYLE = Markup(
    "<style>.axis,.grid{stroke:#888}.grid{stroke-dasharray:2 4}.span{stroke:#1f5fa8;"
    "stroke-width:2}.best{fill:#1f5fa8}.other{fill:#fff;stroke:#1f5fa8;stroke-width:2}"
    "text{font:13px sans-serif;fill:#222}</style>"
)
_SHAPES = {
    True: Markup('<circle class="best" r="6"/>'),
    False: Markup('<circle class="other" r="5"/>'),
}


@dataclass(frozen=True)
class Point:
    """One thing that was tried.

    Attributes:
        name: short.
        score: of the model, on validation records.
        leak, low, high: how far the worst attack is above one without the message, with its ends.
        best: nothing else is at least as good in both.
    """

    name: str
    score: float
    leak: float
    low: float
    high: float
    best: bool


def frontier(points: Sequence[Point], metric: str) -> Markup:
    """Return the picture, which stands by itself: it brings its own style.

    Args:
        points: at least one.
        metric: name of the score.
    """
    scores = [point.score for point in points]
    ends = [end for point in points for end in (point.low, point.high, 0.0)]
    first, last = min(scores), max(scores)
    low, high = min(ends), max(ends)
    wide, tall = (last - first) or 1.0, (high - low) or 1.0

    def x(score: float) -> float:
        return _LEFT + 4 + (_WIDE - 8) * (score - first) / wide

    def y(leak: float) -> float:
        return _TOP + _TALL * (1 - (leak - low) / tall)

    parts = [_STYLE, line(_LEFT, y(0.0), _LEFT + _WIDE, y(0.0), "grid")]
    parts.append(line(_LEFT, _TOP, _LEFT, _TOP + _TALL, "axis"))
    for value in sorted({low, 0.0, high}):
        parts.append(text(_LEFT - 1, y(value) + 4, f"{value:.2f}", "tick", "end"))
    for value in sorted({first, last}):
        parts.append(text(x(value), _TOP + _TALL + 20, f"{value:.3f}", "tick", "middle"))
    for point in points:
        parts.append(line(x(point.score), y(point.low), x(point.score), y(point.high), "span"))
        parts.append(at(x(point.score), y(point.leak), _SHAPES[point.best]))
        right = x(point.score) < _LEFT + _WIDE / 2
        where = x(point.score) + (1.5 if right else -1.5)
        anchor = "start" if right else "end"
        parts.append(text(where, y(point.leak) - 6, cut(point.name, _NAME), "value", anchor))
    below = _TOP + _TALL + 42
    parts.append(text(_LEFT, 14, "above an attacker without the message", "tick"))
    parts.append(text(_LEFT, below, f"validation {metric}; filled: on the frontier", "tick"))
    best = ", ".join(point.name for point in points if point.best)
    return figure(
        "frontier",
        "frontier",
        "Leakage against validation score",
        f"{len(points)} settings; on the frontier: {best or 'none'}. The table has all numbers.",
        below + 10,
        parts,
    )
