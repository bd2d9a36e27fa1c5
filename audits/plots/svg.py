"""Small inline SVG: bars that stretch with the page while their text keeps its size, and marks.

Widths are per cent and text is in CSS pixels, so there is no viewBox and nothing is scaled down on
a narrow screen. Every figure carries a title and a description; the table beside it has the
numbers. Colours are classes of the page's style sheet; unsafe bars also differ by pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_ROW, _BAR = 66, 12  # pixels: a row's height, a bar's height
_TEXT, _VALUE = 15, 33  # pixels: baselines of the label and, on its own line, the value
_LABEL = 44  # characters
_LEAST = 0.6  # per cent; a bar is never invisible

# Shape beside word and colour: disc with a tick, triangle, octagon with a cross, dashed ring.
_MARKS = {
    "OK": '<circle cx="10" cy="10" r="9"/><path class="cut" d="M5.5 10.5l3 3 6-7"/>',
    "ATTENTION": '<path d="M10 1.5 19.2 18H.8z"/><path class="cut" d="M10 7.5v5M10 14.6v1.2"/>',
    "FAIL": '<path d="M6.3 1h7.4L19 6.3v7.4L13.7 19H6.3L1 13.7V6.3z"/>'
    '<path class="cut" d="M6.5 6.5l7 7M13.5 6.5l-7 7"/>',
    "NOT TESTED": '<circle class="ring" cx="10" cy="10" r="8"/>',
}
_ALIASES = {
    "NOT CHECKED": "NOT TESTED",
    "PASS": "OK",
    "ABOVE PRIOR": "ATTENTION",
    "INCONCLUSIVE": "ATTENTION",
    "INVALID": "ATTENTION",
    "ERROR": "ATTENTION",
    "NOT APPLICABLE": "NOT TESTED",
    "FALSIFIED": "FAIL",
    "NOT FALSIFIED": "OK",
    "UNTESTED": "NOT TESTED",
    "critical": "FAIL",
    "high": "FAIL",
    "medium": "ATTENTION",
    "low": "NOT TESTED",
    "info": "NOT TESTED",
}


@dataclass(frozen=True)
class Bar:
    """One bar: its label, its value as text, its length as a share of the longest (0 to 1)."""

    label: str
    value: str
    share: float
    unsafe: bool = False


def mark(state: str) -> Markup:
    """Return the shape of a state; it is decoration, as the word always stands beside it."""
    shape = _MARKS[_ALIASES.get(state, state)]
    return Markup(  # noqa: S704 - the shape is a constant of this file
        f'<svg class="mark" width="20" height="20" viewBox="0 0 20 20" '
        f'aria-hidden="true" focusable="false">{shape}</svg>'
    )


def bars(name: str, title: str, description: str, rows: Sequence[Bar]) -> Markup:
    """Return a bar chart.

    Args:
        name: unique in the page; prefix of the ids.
        title: text alternative, one line.
        description: longer text alternative.
        rows: from top to bottom.
    """
    drawn = [_row(name, place * _ROW, row) for place, row in enumerate(rows)]
    height = max(1, len(rows)) * _ROW
    return figure("bars", name, title, description, height, [_pattern(name), *drawn])


def figure(
    kind: str, name: str, title: str, description: str, height: int, parts: Sequence[Markup]
) -> Markup:
    """Return a picture as wide as its place, with its text alternatives.

    Args:
        kind: class for the style sheet.
        name: unique in the page; prefix of the ids.
        title: text alternative, one line.
        description: longer text alternative.
        height: CSS pixels.
        parts: what is in it.
    """
    head = Markup(
        '<svg class="{}" role="img" width="100%" height="{}" aria-labelledby="{}-title {}-desc">'
        '<title id="{}-title">{}</title><desc id="{}-desc">{}</desc>'
    ).format(kind, height, name, name, name, title, name, description)
    return Markup("").join([head, *parts, Markup("</svg>")])


def at(x: float, y: float, inside: Markup) -> Markup:
    """Return something drawn around a point: x in per cent of the width, y in pixels."""
    return Markup('<svg x="{:.2f}%" y="{:.1f}" overflow="visible">{}</svg>').format(x, y, inside)


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> Markup:
    """Return a line of text: x in per cent, y in pixels at its baseline."""
    extra = Markup(' class="{}"').format(kind) if kind else Markup("")
    return Markup('<text x="{:.2f}%" y="{:.1f}" text-anchor="{}"{}>{}</text>').format(
        x, y, anchor, extra, words
    )


def cut(words: str, length: int) -> str:
    """Return a text, shortened with an ellipsis where it is longer than `length` characters."""
    return words if len(words) <= length else words[: length - 1] + "\u2026"


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """Return a line: x in per cent, y in pixels."""
    return Markup(
        '<line class="{}" x1="{:.2f}%" y1="{:.1f}" x2="{:.2f}%" y2="{:.1f}"/>'
    ).format(kind, x1, y1, x2, y2)  # fmt: skip


def _pattern(name: str) -> Markup:
    return Markup(
        '<defs><pattern id="{}-hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect class="hatch-ground" width="6" height="6"/>'
        '<rect class="hatch-line" width="3" height="6"/></pattern></defs>'
    ).format(name)


def _row(name: str, top: int, row: Bar) -> Markup:
    label = cut(row.label, _LABEL)
    width = max(_LEAST, 100 * min(1.0, max(0.0, row.share)))
    fill = Markup(' fill="url(#{}-hatch)"').format(name) if row.unsafe else Markup(' class="bar"')
    return Markup(
        '<text x="0" y="{}">{}</text><text x="0" y="{}" class="value">{}</text>'
        '<rect class="track" x="0" y="{}" width="100%" height="{}" rx="2"/>'
        '<rect{} x="0" y="{}" width="{:.2f}%" height="{}" rx="2"/>'
    ).format(
        top + _TEXT, label, top + _VALUE, row.value,
        top + _VALUE + 7, _BAR, fill, top + _VALUE + 7, width, _BAR,
    )  # fmt: skip


def meter(share: float, label: str) -> Markup:
    """Return a thin bar for one table cell: a share between 0 and 1, with its text alternative."""
    width = 100 * min(1.0, max(0.0, share))
    return Markup(
        '<svg class="meter" role="img" width="100%" height="8" aria-label="{}"><title>{}</title>'
        '<rect class="track" width="100%" height="8" rx="2"/>'
        '<rect class="bar" width="{:.2f}%" height="8" rx="2"/></svg>'
    ).format(label, escape(label), width)
