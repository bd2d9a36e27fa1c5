"""Bytes per round: what left, stacked by route, inside the outline of what was planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from audits.plots.svg import at, figure, line, text
from audits.report import words
from audits.report.sections import RoundBytes

MOST_COLUMNS = 60  # with more rounds, a column is the sum over several
_KINDS = 5  # patterns; routes beyond the fourth share the last
_TALL, _LEGEND = 190, 22  # pixels
_LEFT = 13.0  # per cent of the width, for the sizes
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
    top = _LEGEND * (min(len(order), _KINDS) + 1) + 26
    for share in (0.0, 0.5, 1.0):
        y = top + _TALL * (1 - share)
        drawn.append(line(_LEFT, y, 100, y, "grid"))
        drawn.append(text(_LEFT - 1.5, y + 4, words.size(round(most * share)), "tick", "end"))
    for number, column in enumerate(columns):
        drawn.append(_column(column, number, len(columns), order, most, top))
    over = sum(sum(c.seen.values()) > c.planned for c in columns)
    description = (
        f"{words.plural(len(columns), 'column')}; in {over} of them more left than was planned. "
        "All numbers stand in the table that follows."
    )
    title = "Bytes per round, planned and seen"
    parts = [_patterns(), *legend, *drawn, *_axis(columns, top)]
    return figure("stacks", "stacks", title, description, top + _TALL + 46, parts)


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
    wide = (100 - _LEFT) / count
    x, y = _LEFT + number * wide, float(top + _TALL)
    tall = _TALL * column.planned / most
    parts = [
        Markup(
            '<rect class="planned" x="{:.3f}%" y="{:.2f}" width="{:.3f}%" height="{:.2f}"/>'
        ).format(x + wide * 0.08, y - tall, wide * 0.84, tall)
    ]
    for place, route in enumerate(order):
        part = _TALL * column.seen[route] / most
        if part <= 0:
            continue
        y -= part
        parts.append(
            Markup(
                '<rect class="part" fill="url(#stacks-{})" x="{:.3f}%" y="{:.2f}" '
                'width="{:.3f}%" height="{:.2f}"/>'
            ).format(min(place, _KINDS - 1), x + wide * 0.18, y, wide * 0.64, part)
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
    for place, (sender, recipient) in enumerate(order[:_KINDS]):
        name = f"{words.role(sender)} → {words.role(recipient)}"
        if place == _KINDS - 1 and len(order) > _KINDS:
            name = f"the other {len(order) - place} routes"
        made.append(
            at(
                0,
                14 + _LEGEND * (place + 1),
                Markup(
                    '<rect class="part" fill="url(#stacks-{})" y="-12" width="22" height="14"/>'
                    '<text x="30">{}</text>'
                ).format(place, name),
            )
        )
    return made


def _axis(columns: Sequence[_Column], top: int) -> list[Markup]:
    count, y = len(columns), top + _TALL + 18
    step = max(1, -(-count // 6))
    shown = {0, count - 1, *range(step, max(step, count - step // 2 - 1), step)} if count else set()
    made = []
    for number in sorted(shown):
        column = columns[number]
        name = words.span(column.first, column.last) if column.last else "0"
        place = _LEFT + (100 - _LEFT) * (number + 0.5) / count
        made.append(text(place, y, name, "tick", _anchor(number, count)))
    made.append(text(_LEFT, y + 20, "round; 0: what the plan ties to no round", "tick"))
    return made


def _anchor(number: int, count: int) -> str:
    """Return how a label hangs on its column, so that none is cut off at the edge."""
    if count < 12 or 0 < number < count - 1:
        return "middle"
    return "end" if number else "start"
