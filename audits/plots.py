"""The report's pictures: inline SVG whose x is per cent and whose y is pixels.

Each has a title and a description; the table with its numbers stands right below it. Shapes,
patterns and words tell apart what colours tell apart too. There is no viewBox, so nothing is scaled
down on a narrow screen. Colours are classes of the page's style sheet.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from markupsafe import Markup, escape

from audits.attacks._shared.models import AttackRow, Claim, Value
from audits.report import words
from audits.report.attack_words import verdict
from audits.report.learning import Curve
from audits.report.models import Egress
from audits.report.sections import Clustering, Clusters, Flow, RoundBytes, Spending
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE

_SVG_ROW, _BAR = 66, 12  # pixels: a row's height, a bar's height
_TEXT, _VALUE = 15, 33  # pixels: baselines of the label and, on its own line, the value
_SVG_LABEL = 44  # characters
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
    "NOBODY": "ATTENTION",
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
    drawn = [_row(name, place * _SVG_ROW, row) for place, row in enumerate(rows)]
    height = max(1, len(rows)) * _SVG_ROW
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
    label = cut(row.label, _SVG_LABEL)
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


# Who sends what to whom: one lane per role, one arrow per direction, from top to bottom.

_FLOWS_FIRST = (str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.KEY_AUTHORITY))
_FLOWS_HEAD, _FLOWS_ROW = 48, 74  # pixels: the lanes' names, one flow
_PROTECTION = 58  # characters
_HEADS = Markup(
    '<defs><marker id="flows-tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" '
    'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path class="tip" '
    'd="M0 0 10 5 0 10z"/></marker><marker id="flows-tip-unsafe" viewBox="0 0 10 10" refX="9" '
    'refY="5" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
    '<path class="tip unsafe" d="M0 0 10 5 0 10z"/></marker></defs>'
)


def flows(rows: Sequence[Flow]) -> Markup:
    """Return the data-flow diagram.

    Args:
        rows: from section 1; roles that are not on the roster get a lane too.
    """
    roles = {role for row in rows for role in (row.sender, row.recipient)} - {EVERYONE}
    lanes = [role for role in _FLOWS_FIRST if role in roles] + sorted(roles - set(_FLOWS_FIRST))
    place = {role: 100 * (number + 0.5) / len(lanes) for number, role in enumerate(lanes)}
    height = _FLOWS_HEAD + _FLOWS_ROW * len(rows) + 8
    parts = [_HEADS]
    for role in lanes:
        parts.append(line(place[role], 34, place[role], height, "lane"))
        name = cut(_plural(role), 16)
        box = Markup('<rect class="role" x="-56" y="-16" width="112" height="30" rx="6"/>')
        parts.append(at(place[role], 18, box + text(0, 4, name, "name", "middle")))
    for number, row in enumerate(rows):
        parts.append(_flow(row, place, _FLOWS_HEAD + number * _FLOWS_ROW))
    description = "; ".join(
        f"{_plural(row.sender)} to {_plural(row.recipient)}: {_amount(row)}" for row in rows
    )
    title = "Who sends what to whom"
    return figure("flows", "flows", title, description or "Nothing left.", height, parts)


def _plural(role: str) -> str:
    return "clients" if role == Role.CLIENT else words.role(role)


def _amount(row: Flow) -> str:
    return f"{words.plural(row.count, 'envelope')}, {words.size(row.bytes)}"


def _whole(kinds: Sequence[str]) -> str:
    """Return as many kinds of protection as fit, none of them cut, and how many more there are."""
    for count in range(len(kinds), 1, -1):
        rest = f"; {len(kinds) - count} more" if count < len(kinds) else ""
        if len(said := "; ".join(kinds[:count]) + rest) <= _PROTECTION:
            return said
    return "".join(kinds[:1]) + (f"; {len(kinds) - 1} more" if len(kinds) > 1 else "")


def _flow(row: Flow, place: dict[str, float], top: int) -> Markup:
    route = f"{_plural(row.sender)} → {_plural(row.recipient)}: {_amount(row)}"
    protection = f"UNSAFE: {_whole(row.protection)}" if row.unsafe else _whole(row.protection)
    kind = "flow unsafe" if row.unsafe else "flow"
    start = place.get(row.sender, 50.0)
    ends = [place[row.recipient]] if row.recipient in place else []
    if row.recipient == EVERYONE:
        ends = [x for role, x in place.items() if role != row.sender]
    arrows = [
        line(start, top + 54, end if end != start else end + 6, top + 54, kind) for end in ends
    ]
    tip = "flows-tip-unsafe" if row.unsafe else "flows-tip"
    tipped = [
        Markup(str(arrow).replace("/>", f' marker-end="url(#{tip})"/>'))  # noqa: S704 - our own
        for arrow in arrows
    ]
    said = cut(protection, _PROTECTION)
    return Markup("").join(
        [
            text(0, top + 18, route, "value"),
            text(0, top + 37, said, "unsafe" if row.unsafe else "soft"),
            *tipped,
        ]
    )


# Bytes per round: what left, stacked by route, inside the outline of what was planned.

MOST_COLUMNS = 60  # with more rounds, a column is the sum over several
_STACKS_KINDS = 5  # patterns; routes beyond the fourth share the last
_STACKS_TALL, _STACKS_LEGEND = 190, 22  # pixels
_STACKS_LEFT = 13.0  # per cent of the width, for the sizes
Route = tuple[str, str]

# One pattern per route beside its colour: solid, slanted, dotted, level lines, crossed.
_PATTERNS = (
    '<rect class="s0" width="8" height="8"/>',
    '<rect class="s1 ground" width="8" height="8"/><path class="s1 ink" d="M-2 6 6-2M2 10 10 2"/>',
    '<rect class="s2 ground" width="8" height="8"/><circle class="s2 dot" cx="4" cy="4" r="2"/>',
    '<rect class="s3 ground" width="8" height="8"/><path class="s3 ink" d="M0 4H8"/>',
    '<rect class="s4 ground" width="8" height="8"/><path class="s4 ink" d="M0 0 8 8M8 0 0 8"/>',
)


@dataclass
class _Column:
    first: int
    last: int
    planned: int
    seen: Counter[Route]


def routes(rounds: Sequence[RoundBytes]) -> list[Route]:
    """Return the routes of all rounds, the largest first."""
    total: Counter[Route] = Counter()
    for row in rounds:
        for part in row.parts:
            total[part.sender, part.recipient] += part.bytes
    return sorted(total, key=lambda route: (-total[route], route))


def stacks(rounds: Sequence[RoundBytes]) -> Markup:
    """Return the chart of planned and seen bytes over the rounds."""
    order = routes(rounds)
    columns = _columns(rounds)
    most = max((max(c.planned, sum(c.seen.values())) for c in columns), default=0) or 1
    legend, drawn = _legend(order), []
    top = _STACKS_LEGEND * (min(len(order), _STACKS_KINDS) + 1) + 26
    for share in (0.0, 0.5, 1.0):
        y = top + _STACKS_TALL * (1 - share)
        drawn.append(line(_STACKS_LEFT, y, 100, y, "grid"))
        drawn.append(
            text(_STACKS_LEFT - 1.5, y + 4, words.size(round(most * share)), "tick", "end")
        )
    for number, column in enumerate(columns):
        drawn.append(_column(column, number, len(columns), order, most, top))
    over = sum(sum(c.seen.values()) > c.planned for c in columns)
    description = (
        f"{words.plural(len(columns), 'column')}; in {over} of them more left than was planned. "
        "All numbers stand in the table that follows."
    )
    title = "Bytes per round, planned and seen"
    parts = [_patterns(), *legend, *drawn, *_axis(columns, top)]
    return figure("stacks", "stacks", title, description, top + _STACKS_TALL + 46, parts)


def _columns(rounds: Sequence[RoundBytes]) -> list[_Column]:
    """Return one column per round, or per span of rounds; round 0 always stands alone."""
    made = []
    size = max(1, -(-len(rounds) // MOST_COLUMNS))
    outside = [row for row in rounds if row.round == 0]
    inside = [row for row in rounds if row.round != 0]
    groups = [outside] if outside else []
    groups += [inside[n : n + size] for n in range(0, len(inside), size)]
    for group in groups:
        seen: Counter[Route] = Counter()
        for row in group:
            for part in row.parts:
                seen[part.sender, part.recipient] += part.bytes
        planned = sum(row.planned for row in group)
        made.append(_Column(group[0].round, group[-1].round, planned, seen))
    return made


def _column(
    column: _Column, number: int, count: int, order: Sequence[Route], most: int, top: int
) -> Markup:
    wide = (100 - _STACKS_LEFT) / count
    x, y = _STACKS_LEFT + number * wide, float(top + _STACKS_TALL)
    tall = _STACKS_TALL * column.planned / most
    parts = [
        Markup(
            '<rect class="planned" x="{:.3f}%" y="{:.2f}" width="{:.3f}%" height="{:.2f}"/>'
        ).format(x + wide * 0.08, y - tall, wide * 0.84, tall)
    ]
    for place, route in enumerate(order):
        part = _STACKS_TALL * column.seen[route] / most
        if part <= 0:
            continue
        y -= part
        parts.append(
            Markup(
                '<rect class="part" fill="url(#stacks-{})" x="{:.3f}%" y="{:.2f}" '
                'width="{:.3f}%" height="{:.2f}"/>'
            ).format(min(place, _STACKS_KINDS - 1), x + wide * 0.18, y, wide * 0.64, part)
        )
    return Markup("").join(parts)


def _patterns() -> Markup:
    made = [
        Markup(
            '<pattern id="stacks-{}" width="8" height="8" patternUnits="userSpaceOnUse">'
        ).format(number)
        + Markup(pattern)  # noqa: S704 - a constant of this file
        + Markup("</pattern>")
        for number, pattern in enumerate(_PATTERNS)
    ]
    return Markup("<defs>") + Markup("").join(made) + Markup("</defs>")


def _legend(order: Sequence[Route]) -> list[Markup]:
    box = Markup('<rect class="planned" y="-12" width="22" height="14"/>')
    made = [at(0, 14, box) + at(0, 14, Markup('<text x="30">planned at most</text>'))]
    for place, (sender, recipient) in enumerate(order[:_STACKS_KINDS]):
        name = f"{words.role(sender)} → {words.role(recipient)}"
        if place == _STACKS_KINDS - 1 and len(order) > _STACKS_KINDS:
            name = f"the other {len(order) - place} routes"
        made.append(
            at(
                0,
                14 + _STACKS_LEGEND * (place + 1),
                Markup(
                    '<rect class="part" fill="url(#stacks-{})" y="-12" width="22" height="14"/>'
                    '<text x="30">{}</text>'
                ).format(place, name),
            )
        )
    return made


def _axis(columns: Sequence[_Column], top: int) -> list[Markup]:
    count, y = len(columns), top + _STACKS_TALL + 18
    step = max(1, -(-count // 6))
    shown = {0, count - 1, *range(step, max(step, count - step // 2 - 1), step)} if count else set()
    made = []
    for number in sorted(shown):
        column = columns[number]
        name = words.span(column.first, column.last) if column.last else "0"
        place = _STACKS_LEFT + (100 - _STACKS_LEFT) * (number + 0.5) / count
        made.append(text(place, y, name, "tick", _anchor(number, count)))
    made.append(text(_STACKS_LEFT, y + 20, "round; 0: what the plan ties to no round", "tick"))
    return made


def _anchor(number: int, count: int) -> str:
    """Return how a label hangs on its column, so that none is cut off at the edge."""
    if count < 12 or 0 < number < count - 1:
        return "middle"
    return "end" if number else "start"


# Clusters over the rounds: each a box as high as its clients, its parts to the right of it.

_CLUSTERS_TALL, _CLUSTERS_TOP = 220, 24  # pixels
_LOW, _NARROW = 15.0, 7.0  # a box that is lower (pixels) or narrower (per cent) says no number
_CLUSTERS_LEFT, _CLUSTERS_WIDE = 1.0, 98.0  # per cent
_MOST = 8  # rows that the description has
_BETWEEN = 9.0  # per cent between two numbers of rounds


@dataclass(frozen=True)
class _Box:
    """A cluster: from a round until before another, between two places of the stack of clients."""

    first: int
    end: int
    low: int
    high: int
    apart: bool


def clusters(found: Clusters, rounds: int) -> Markup:
    """Return the chart of a run's clusters; clients that were asked in none are in dashed boxes.

    Args:
        found: from the report.
        rounds: of the run.
    """
    starts = [row.round for row in found.rows]
    first, end = min([1, *starts]), max([1, rounds, *starts]) + 1
    everybody = max((sum(row.sizes) + row.apart for row in found.rows), default=0) or 1

    def x(round: int) -> float:
        return _CLUSTERS_LEFT + _CLUSTERS_WIDE * (round - first) / (end - first)

    parts = [text(_CLUSTERS_LEFT, 14, words.plural(everybody, "client"), "value")]
    for box in _boxes(found.rows, end):
        top, tall = (
            _CLUSTERS_TALL * clients / everybody for clients in (box.low, box.high - box.low)
        )
        parts.append(_clusters_drawn(box, x(box.first), x(box.end), _CLUSTERS_TOP + top, tall))
    y = _CLUSTERS_TOP + _CLUSTERS_TALL + 18
    for round in _ticks(starts, end, _CLUSTERS_WIDE / (end - first)):
        name = words.round_name(round, rounds)
        parts.append(text((x(round) + x(round + 1)) / 2, y, name, "tick", "middle"))
    parts.append(text(_CLUSTERS_LEFT, y + 20, "round; end: after the last one", "tick"))
    said = [
        f"{f'round {row.round}' if row.round <= rounds else 'the end'}: "
        f"{', '.join(map(str, row.sizes))}"
        for row in found.rows[:_MOST]
    ]
    description = f"Clients in each cluster, from {'; from '.join(said) or 'no round'}."
    title = "Clusters over the rounds"
    return figure("clusters", "clusters", title, description, y + 24, parts)


def _boxes(rows: Sequence[Clustering], end: int) -> Iterator[_Box]:
    """Yield each cluster once, however many rows it is in: those that have its place and size."""
    since: dict[tuple[int, int, bool], int] = {}
    for row in rows:
        here, low = {}, 0
        for size, apart in (*((size, False) for size in row.sizes), (row.apart, True)):
            if size:
                place = (low, low + size, apart)
                here[place] = since.get(place, row.round)
            low += size
        yield from _ended(since, here, row.round)
        since = here
    yield from _ended(since, {}, end)


def _ended(
    since: dict[tuple[int, int, bool], int], here: dict[tuple[int, int, bool], int], round: int
) -> Iterator[_Box]:
    for place, first in since.items():
        if place not in here and first < round:
            yield _Box(first, round, *place)


def _clusters_drawn(box: _Box, left: float, right: float, top: float, tall: float) -> Markup:
    wide = right - left
    drawn = Markup('<rect class="{}" x="{:.3f}%" y="{:.2f}" width="{:.3f}%" height="{:.2f}"/>')
    parts = drawn.format("cluster apart" if box.apart else "cluster", left, top, wide, tall)
    if tall >= _LOW and wide >= _NARROW:
        said = words.number(box.high - box.low)
        parts += text(left + wide / 2, top + tall / 2 + 5, said, "value", "middle")
    return parts


def _ticks(starts: Sequence[int], end: int, wide: float) -> list[int]:
    """Return the rounds that are named: the last, and those of changes that leave room for it."""
    shown: list[int] = []
    for round in dict.fromkeys(starts):
        room = not shown or (round - shown[-1]) * wide >= _BETWEEN
        if room and (end - 1 - round) * wide >= _BETWEEN:
            shown.append(round)
    return [*shown, end - 1]


# Epsilon over the rounds, with the line of the budget.

_TIMELINE_TALL, _TIMELINE_TOP = 190, 30  # pixels
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
        return _TIMELINE_TOP + _TIMELINE_TALL * (1 - value / top_value)

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
    return figure("timeline", name, title, description, _TIMELINE_TOP + _TIMELINE_TALL + 30, parts)


# Training curves: one chart a measure, one line a score, told apart by dashes and by name.

_CURVES_TALL, _CURVES_LEGEND = 190, 22  # pixels
_CURVES_LEFT = 11.0  # per cent of the width, for the values
_CURVES_KINDS = 4  # kinds of line; the fifth and later share the last
_CURVES_LINE = Markup(  # stretches with the page; its width and dashes do not
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
        picture = _curves_drawn(measure, group, f"curves-{number}")
        made.append(Chart(measure, picture, tuple(group), tuple(rounds)))
    return made


def _curves_drawn(measure: str, group: Sequence[Curve], name: str) -> Markup:
    values = [float(point.value) for curve in group for point in curve.points]
    low, high = min(0.0, *values), max(values)
    high = 1.0 if 0.0 < high <= 1.0 else high + 0.05 * (high - low)
    high = high if high > low else low + (abs(low) or 1.0)  # all values are one, of at most 0
    last = max(point.round for curve in group for point in curve.points) or 1
    top = _CURVES_LEGEND * len(group) + 26

    def x(round: int) -> float:
        return _CURVES_LEFT + (100 - _CURVES_LEFT) * round / last

    def y(value: float) -> float:
        return top + _CURVES_TALL * (1 - (value - low) / (high - low))

    parts = []
    for share in (0.0, 0.5, 1.0):
        value = low + share * (high - low)
        parts.append(line(_CURVES_LEFT, y(value), 100, y(value), "grid"))
        parts.append(text(_CURVES_LEFT - 1.5, y(value) + 4, f"{value:.3g}", "tick", "end"))
    for number, curve in enumerate(group):
        kind = f"curve k{min(number, _CURVES_KINDS - 1)}"
        points = [(1000 * p.round / last, y(float(p.value)) - top) for p in curve.points]
        drawn = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        parts.append(
            _CURVES_LINE.format(
                _CURVES_LEFT, top, 100 - _CURVES_LEFT, _CURVES_TALL, _CURVES_TALL, kind, drawn
            )
        )
        end = curve.points[-1]
        disc = Markup('<circle class="point" r="3.5"/>')
        parts.append(at(x(end.round), y(float(end.value)), disc))
        sample = Markup('<line class="{}" x1="0" y1="0" x2="26" y2="0"/>').format(kind)
        shown = f"{cut(curve.name, 36)}: {words.decimal(curve.points[-1].value)} at the end"
        parts.append(at(0, _CURVES_LEGEND * number + 10, sample))
        parts.append(
            at(0, _CURVES_LEGEND * number + 15, Markup('<text x="34">{}</text>').format(shown))
        )
    parts += [
        text(_CURVES_LEFT, y(low) + 18, "0", "tick"),
        text(100, y(low) + 18, str(last), "tick", "end"),
        text(50, y(low) + 18, "round", "tick", "middle"),
    ]
    ends = "; ".join(
        f"{c.name} from {words.decimal(c.points[0].value)} to {words.decimal(c.points[-1].value)}"
        for c in group
    )
    title = f"{measure} over the rounds"
    return figure(
        "curves", name, title, f"{ends}, after {last} rounds.", top + _CURVES_TALL + 30, parts
    )


# Dots with intervals on one axis: the five marks of an attack, and claims beside bounds.

MOST = 40  # rows of one chart; the table has all
_DOTS_LINE, _STEP, _DOTS_LEGEND = (
    19,
    13,
    22,
)  # pixels: a line of text, one mark, one line of the legend
_DOTS_WIDE = 46  # characters of a line on a narrow screen; nothing is cut, a longer text takes more

_DOTS_SHAPES = {
    "chance": '<path class="chance" d="M0-6V6"/>',
    "prior": '<path class="prior" d="M0-6 6 0 0 6-6 0z"/>',
    "null": '<circle class="null" r="4.5"/>',
    "protected": '<circle class="protected" r="6"/>',
    "raw": '<path class="raw" d="M0-6 6 5H-6z"/>',
    "limit": '<path class="limit" d="M0-8V8"/>',
    "bound": '<circle class="protected" r="6"/>',
    "claim": '<path class="prior" d="M0-6 6 0 0 6-6 0z"/>',
    "ceiling": '<circle class="null" r="4.5"/>',
}
_ATTACKS = (
    ("chance", "chance: a guess that knows nothing"),
    ("prior", "prior: the attacker without the message"),
    ("null", "null: with another client's message, or noise"),
    ("protected", "protected: with what the receiver learnt"),
    ("raw", "raw: with the message before protection"),
    ("limit", "limit: prior plus margin"),
)
_CLAIMS = (
    ("bound", "shown: epsilon is at least this"),
    ("claim", "claimed: epsilon is at most this"),
    ("ceiling", "ceiling: what a perfect attack could have shown"),
)


@dataclass(frozen=True)
class _Mark:
    kind: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class _Block:
    title: str
    detail: str
    marks: tuple[_Mark, ...]
    limit: float | None = None


def attacks(rows: Sequence[AttackRow]) -> Markup:
    """Return the chart of all attacks that have figures; larger is worse."""
    shown = [row for row in rows if row.protected is not None][:MOST]
    blocks = [
        _Block(
            title=f"{row.id} {row.name}, {row.payload}: {row.what}",
            detail=f"{verdict(row)}; {row.metric}",
            marks=tuple(_marks(row)),
            limit=float(row.prior.value) + float(row.margin) if row.prior is not None else None,
        )
        for row in shown
    ]
    verdicts = [verdict(row) for row in shown]
    counted = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    title = "Attacks: five reference points each, with 95 % intervals"
    description = f"Larger is worse. Verdicts: {counted or 'none'}. All numbers: next table."
    return _chart("attacks-plot", title, description, blocks, _ATTACKS, 5)


def _marks(row: AttackRow) -> list[_Mark]:
    made = [_Mark("chance", *[float(row.chance)] * 3)] if row.chance else []
    values: tuple[tuple[str, Value | None], ...] = (
        ("prior", row.prior), ("null", row.null), ("protected", row.protected), ("raw", row.raw),
    )  # fmt: skip
    return made + [
        _Mark(kind, float(v.value), float(v.low), float(v.high)) for kind, v in values if v
    ]


def claims(rows: Sequence[Claim]) -> Markup:
    """Return the chart of claimed epsilons beside the lower bounds that were shown."""
    blocks = []
    for row in [row for row in rows if row.epsilon_lb][:MOST]:
        figures = (
            ("bound", row.epsilon_lb),
            ("claim", row.epsilon_claim),
            ("ceiling", row.ceiling),
        )
        marks = tuple(_Mark(kind, *[float(value)] * 3) for kind, value in figures if value)
        detail = f"{row.status.replace('_', ' ')}; unit: {row.unit}"
        blocks.append(_Block(row.text, detail, marks))
    title = "Claimed epsilon beside what was shown"
    description = "A bound right of the claim falsifies it. All numbers stand in the next table."
    return _chart("claims-plot", title, description, blocks, _CLAIMS, 3)


def _chart(
    name: str,
    title: str,
    description: str,
    blocks: Sequence[_Block],
    legend: Sequence[tuple[str, str]],
    count: int,
) -> Markup:
    parts = []
    for number, (kind, meaning) in enumerate(legend):
        said = Markup('<text x="30">{}</text>').format(meaning)
        parts.append(at(0, _DOTS_LEGEND * number + 15, said))
        parts.append(at(0, _DOTS_LEGEND * number + 10, Markup('<g transform="translate(11)">')
                        + Markup(_DOTS_SHAPES[kind]) + Markup("</g>")))  # noqa: S704 # fmt: skip
    top = _DOTS_LEGEND * len(legend) + 10
    for block in blocks:
        parts.append(_block(block, top, count))
        top += _words_height(block) + _STEP * count + 34
    return figure("dots", name, title, description, top, parts)


def _said(block: _Block) -> list[tuple[str, str]]:
    """Return the lines of text above the marks, each with its class."""
    return [
        (said, kind)
        for shown, kind in ((block.title, "value"), (block.detail, "soft"))
        for said in textwrap.wrap(shown, _DOTS_WIDE)
    ]


def _words_height(block: _Block) -> int:
    return _DOTS_LINE * len(_said(block)) + 6


def _block(block: _Block, top: int, count: int) -> Markup:
    ends = [x for m in block.marks for x in (m.low, m.high)] + [0.0, block.limit or 0.0]
    low, high = min(ends), max([*ends, 1.0])
    high = high if high == 1.0 else high + 0.05 * (high - low)

    def x(value: float) -> float:
        return 3 + 94 * (value - low) / (high - low)

    first = top + _words_height(block) + 8
    floor = first + _STEP * count
    parts = [
        *(text(0, top + 16 + _DOTS_LINE * n, *said) for n, said in enumerate(_said(block))),
        line(3, floor, 97, floor, "axis"),
    ]
    for share in (0.0, 0.5, 1.0):
        value = low + share * (high - low)
        place = x(value)
        parts.append(line(place, floor, place, floor + 5, "axis"))
        parts.append(text(place, floor + 18, f"{value:.3g}", "tick", "middle"))
    if block.limit is not None:
        parts.append(line(x(block.limit), first - 8, x(block.limit), floor, "limit"))
    for number, mark in enumerate(block.marks):
        y = first + _STEP * number
        if mark.high > mark.low:
            parts.append(line(x(mark.low), y, x(mark.high), y, f"interval {mark.kind}"))
        parts.append(at(x(mark.value), y, Markup(_DOTS_SHAPES[mark.kind])))  # noqa: S704 - a constant
    return Markup("").join(parts)


# Who saw what: one row per kind of payload that left, one column per role, a shape in each cell.

_SEEN_FIRST = (str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.KEY_AUTHORITY))
_NOTHING = "nothing"
_OPAQUE = frozenset(
    {
        "its own points times the first tag server's share: uniform",
        "its own row, still blinded",
        "nothing, until enough holders say that this client vanished",
        "nothing: as coordinator it hands on boxes that it cannot open",
        "nothing: it chooses the weights and cannot open a row",
        "size only",
        "size only: boxes that it cannot open, and who takes part when",
        "uniform noise, and who took part when",
        "uniform numbers, one of each member of its cell",
        "uniform numbers: shares under a blind that only clients know",
    }
)
"""Words, whole, that say nothing of what a message holds, though its receiver has its bytes."""
_SEEN_LABEL = 44  # characters
_BESIDE = 3  # names of roles that stand side by side on a narrow screen
_SEEN_LEGEND, _SEEN_HEAD, _SEEN_ROW = 22, 46, 46  # pixels


class Sight(Enum):
    """What a role could do with a kind of payload; the value is in words."""

    NONE = "never had it"
    SEALED = "had it, could not read it"
    READ = "read what the plan says"
    CLEAR = "read it in clear"


_SEEN_SHAPES = {
    Sight.SEALED: '<circle class="ring" r="7"/>',
    Sight.READ: '<circle class="point" r="7.5"/>',
    Sight.CLEAR: '<path class="tip unsafe" d="M-4-9h8l5 5v8l-5 5h-8l-5-5v-8z"/>',
}


@dataclass(frozen=True)
class Matrix:
    """Kinds of payload and roles.

    Attributes:
        roles: columns.
        rows: payload id and, in the order of the columns, what each role could do.
        picture: the same as inline SVG.
    """

    roles: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Sight, ...]], ...]
    picture: Markup


def matrix(egress: Sequence[Egress], roles: Iterable[str]) -> Matrix:
    """Return who could read which kind of payload.

    Args:
        egress: what left, rolled up by role; a kind that goes in several items counts as read if
            one of them was.
        roles: of the parties on the roster.
    """
    there = set(roles)
    shown = [r for r in _SEEN_FIRST if r in there] + sorted(there - set(_SEEN_FIRST))
    found: dict[str, dict[str, Sight]] = {}
    for row in egress:
        for payload in row.payloads:
            if payload in words.FORMS:
                continue
            cells = found.setdefault(payload, dict.fromkeys(shown, Sight.NONE))
            for role in shown:
                cells[role] = max(cells[role], _sight(row, role), key=list(Sight).index)
    rows = tuple((id, tuple(cells.values())) for id, cells in sorted(found.items()))
    return Matrix(tuple(shown), rows, _picture(shown, rows))


def _sight(row: Egress, role: str) -> Sight:
    """Return what a role could do with one item."""
    told = [row.learns[name] for name in _names(role) if name in row.learns]
    if row.recipient_role in (role, EVERYONE):
        told = told or [row.meaning]
    told = [text for text in told if text != _NOTHING]
    if not told:
        return Sight.NONE
    if _OPAQUE.issuperset(told):
        return Sight.SEALED
    return Sight.CLEAR if row.unsafe and row.recipient_role == role else Sight.READ


def _names(role: str) -> tuple[str, ...]:
    """Return under which names the plan says what a role learns."""
    clients = ("other clients", "addressee") if role == Role.CLIENT else ()
    return (role, "everyone", *clients)


def _picture(roles: Sequence[str], rows: Sequence[tuple[str, tuple[Sight, ...]]]) -> Markup:
    parts = []
    for number, (sight, shape) in enumerate(_SEEN_SHAPES.items()):
        y = _SEEN_LEGEND * number
        said = Markup('<text x="26">{}</text>').format(sight.value)
        parts.append(at(0, y + 15, said))
        moved = f'<g transform="translate(9)">{shape}</g>'
        parts.append(at(0, y + 10, Markup(moved)))  # noqa: S704 - a constant of this file
    top = _SEEN_LEGEND * len(_SEEN_SHAPES) + 8
    places = [100 * (number + 0.5) / len(roles) for number in range(len(roles))]
    height = top + _SEEN_HEAD + _SEEN_ROW * len(rows) + 6
    for number, (role, x) in enumerate(zip(roles, places, strict=True)):
        # Names of neighbours stand on two lines in turn, so that none meets another.
        parts.append(line(x, top + _SEEN_HEAD - 4, x, height, "lane"))
        parts.append(
            text(
                x,
                top + 14 + 18 * (number % 2 if len(roles) > _BESIDE else 1),
                words.role(role),
                "name",
                "middle",
            )
        )
    for number, (id, cells) in enumerate(rows):
        y = top + _SEEN_HEAD + _SEEN_ROW * number
        parts.append(text(0, y + 14, cut(f"{id} {words.NAMES[id]}", _SEEN_LABEL), "value"))
        for x, sight in zip(places, cells, strict=True):
            if sight in _SEEN_SHAPES:
                parts.append(at(x, y + 31, Markup(_SEEN_SHAPES[sight])))  # noqa: S704 - a constant
    readers = "; ".join(
        ", ".join([id, *(f"{words.role(r)} {s.value}" for r, s in zip(roles, cells, strict=True))])
        for id, cells in rows
    )
    description = f"{readers or 'Nothing left'}. The same stands in the table that follows."
    return figure("seen", "seen", "Who could read what", description, height, parts)
