"""The plot of benchmarks/unmixing.py: one panel a floor, AUC over the width, as one SVG file."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

__all__ = ["plot"]

_WIDE, _TALL, _GAP, _LEFT, _TOP = 170, 190, 22, 46, 74
_LINES = (
    ("protected", "computed", "mixtures, by the layers that made them", "#b3261e", ""),
    ("protected", "began", "mixtures, by the layers the round began with", "#1f5fa8", "6 3"),
    ("raw", "computed", "raw control: single records", "#444444", "2 3"),
    ("null", "computed", "null control: another client's mixtures", "#777777", "8 3 2 3"),
)


def plot(lines: list[dict[str, Any]]) -> str:
    """Return the grid as SVG: 95 % intervals as bars; the dotted line is a guess."""
    floors = sorted({line["chosen"]["floor"] for line in lines})
    widths = sorted({line["chosen"]["width"] for line in lines})
    wide = _LEFT + len(floors) * (_WIDE + _GAP)
    tall = _TOP + _TALL + 40
    title = "Which records are in a mixture? AUC over the width of the vectors"
    parts = [
        Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{0}" height="{1}" '
            'viewBox="0 0 {0} {1}"><title>{2}</title><desc>One panel for each floor. The figures '
            'stand in the table.</desc><rect width="{0}" height="{1}" fill="#ffffff"/>'
        ).format(wide, tall, title)
    ]
    for place, (_, _, words, colour, dash) in enumerate(_LINES):
        x, y = _LEFT + (place % 2) * 330, 16 + 18 * (place // 2)
        parts.append(_line([(x, y - 4), (x + 26, y - 4)], colour, dash))
        parts.append(_text(x + 32, y, words))
    for place, floor in enumerate(floors):
        mine = [line for line in lines if line["chosen"]["floor"] == floor]
        parts.append(_panel(_LEFT + place * (_WIDE + _GAP), floor, mine, widths, place == 0))
    parts.append(Markup("</svg>\n"))
    return str(Markup("\n").join(parts))


def _panel(
    left: int, floor: int, lines: list[dict[str, Any]], widths: list[int], first: bool
) -> Markup:
    def x(width: int) -> float:
        return left + 14 + (_WIDE - 28) * widths.index(width) / max(1, len(widths) - 1)

    def y(area: float) -> float:
        return _TOP + _TALL * (1.02 - area) / 0.62

    parts = [
        _text(left, _TOP - 12, f"floor {floor}"),
        _line([(left, y(0.4)), (left + _WIDE, y(0.4))], "#222222", ""),
        _line([(left, y(0.5)), (left + _WIDE, y(0.5))], "#222222", "1 3"),
    ]
    for width in widths:
        parts.append(_text(x(width), y(0.4) + 15, str(width), "middle"))
    for area in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0) if first else ():
        parts.append(_text(left - 6, y(area) + 4, f"{area:.1f}", "end"))
    for side, layers, _, colour, dash in _LINES:
        points = []
        for line in sorted(lines, key=lambda line: int(line["chosen"]["width"])):
            (row,) = (
                r for r in line["rows"] if r["metric"].startswith("AUC") and _layers(r) == layers
            )
            value, at = row[side], x(line["chosen"]["width"])
            points.append((at, y(float(value["value"]))))
            ends = [(at, y(max(0.4, float(value[end])))) for end in ("low", "high")]
            parts.append(_line(ends, colour, ""))
            parts.append(_dot(points[-1], colour))
        parts.append(_line(points, colour, dash))
    return Markup("\n").join(parts)


def _layers(row: dict[str, Any]) -> str:
    return "began" if "began" in row["what"] else "computed"


def _line(points: list[tuple[float, float]], colour: str, dash: str) -> Markup:
    said = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Markup(
        '<polyline points="{}" fill="none" stroke="{}" stroke-width="1.6" stroke-dasharray="{}"/>'
    ).format(said, colour, dash)


def _dot(at: tuple[float, float], colour: str) -> Markup:
    return Markup('<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>').format(*at, colour)


def _text(x: float, y: float, words: str, anchor: str = "start") -> Markup:
    return Markup(
        '<text x="{:.1f}" y="{:.1f}" text-anchor="{}" '
        'font-family="sans-serif" font-size="11">{}</text>'
    ).format(x, y, anchor, words)
