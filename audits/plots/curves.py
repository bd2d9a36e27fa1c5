"""Training curves: one chart a measure, one line a score, told apart by dashes and by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from audits.plots.svg import at, cut, figure, line, text
from audits.report import words
from audits.report.learning.curves import Curve

_TALL, _LEGEND = 190, 22  # pixels
_LEFT = 11.0  # per cent of the width, for the values
_KINDS = 4  # kinds of line; the fifth and later share the last
_LINE = Markup(  # stretches with the page; its width and dashes do not
    '<svg x="{:.2f}%" y="{}" width="{:.2f}%" height="{}" viewBox="0 0 1000 {}" '
    'preserveAspectRatio="none" overflow="visible"><polyline class="{}" '
    'vector-effect="non-scaling-stroke" points="{}"/></svg>'
)
_PART = re.compile(r"^(train|val|test)_|_client_mean$")


@dataclass(frozen=True)
class Chart:
    """One measure: its picture, and the scores that are drawn in it.

    Attributes:
        measure: for example ``accuracy``.
        picture: inline SVG.
        curves: its scores, each a line.
        rounds: all rounds that a score has a point at, in order.
    """

    measure: str
    picture: Markup
    curves: tuple[Curve, ...]
    rounds: tuple[int, ...]

    def value(self, curve: Curve, round: int) -> str:
        """Return a score after a round; a dash where it has none."""
        return next((p.value for p in curve.points if p.round == round), "–")


def charts(found: Sequence[Curve]) -> list[Chart]:
    """Return one chart for each measure, by name."""
    groups: dict[str, list[Curve]] = {}
    for curve in found:
        groups.setdefault(_PART.sub("", _PART.sub("", curve.name)) or curve.name, []).append(curve)
    made = []
    for number, (measure, group) in enumerate(sorted(groups.items()), 1):
        rounds = sorted({point.round for curve in group for point in curve.points})
        picture = _drawn(measure, group, f"curves-{number}")
        made.append(Chart(measure, picture, tuple(group), tuple(rounds)))
    return made


def _drawn(measure: str, group: Sequence[Curve], name: str) -> Markup:
    values = [float(point.value) for curve in group for point in curve.points]
    low, high = min(0.0, *values), max(values)
    high = 1.0 if 0.0 < high <= 1.0 else high + 0.05 * (high - low)
    high = high if high > low else low + (abs(low) or 1.0)  # all values are one, of at most 0
    last = max(point.round for curve in group for point in curve.points) or 1
    top = _LEGEND * len(group) + 26

    def x(round: int) -> float:
        return _LEFT + (100 - _LEFT) * round / last

    def y(value: float) -> float:
        return top + _TALL * (1 - (value - low) / (high - low))

    parts = []
    for share in (0.0, 0.5, 1.0):
        value = low + share * (high - low)
        parts.append(line(_LEFT, y(value), 100, y(value), "grid"))
        parts.append(text(_LEFT - 1.5, y(value) + 4, f"{value:.3g}", "tick", "end"))
    for number, curve in enumerate(group):
        kind = f"curve k{min(number, _KINDS - 1)}"
        points = [(1000 * p.round / last, y(float(p.value)) - top) for p in curve.points]
        drawn = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        parts.append(_LINE.format(_LEFT, top, 100 - _LEFT, _TALL, _TALL, kind, drawn))
        end = curve.points[-1]
        disc = Markup('<circle class="point" r="3.5"/>')
        parts.append(at(x(end.round), y(float(end.value)), disc))
        sample = Markup('<line class="{}" x1="0" y1="0" x2="26" y2="0"/>').format(kind)
        shown = f"{cut(curve.name, 36)}: {words.decimal(curve.points[-1].value)} at the end"
        parts.append(at(0, _LEGEND * number + 10, sample))
        parts.append(at(0, _LEGEND * number + 15, Markup('<text x="34">{}</text>').format(shown)))
    parts += [
        text(_LEFT, y(low) + 18, "0", "tick"),
        text(100, y(low) + 18, str(last), "tick", "end"),
        text(50, y(low) + 18, "round", "tick", "middle"),
    ]
    ends = "; ".join(
        f"{c.name} from {words.decimal(c.points[0].value)} to {words.decimal(c.points[-1].value)}"
        for c in group
    )
    title = f"{measure} over the rounds"
    return figure("curves", name, title, f"{ends}, after {last} rounds.", top + _TALL + 30, parts)
