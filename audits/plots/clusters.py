"""Clusters over the rounds: each a box as high as its clients, its parts to the right of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from audits.plots.svg import figure, text
from audits.report import words
from audits.report.sections import Clustering, Clusters

_TALL, _TOP = 220, 24  # pixels
_LOW, _NARROW = 15.0, 7.0  # a box that is lower (pixels) or narrower (per cent) says no number
_LEFT, _WIDE = 1.0, 98.0  # per cent
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
        return _LEFT + _WIDE * (round - first) / (end - first)

    parts = [text(_LEFT, 14, words.plural(everybody, "client"), "value")]
    for box in _boxes(found.rows, end):
        top, tall = (_TALL * clients / everybody for clients in (box.low, box.high - box.low))
        parts.append(_drawn(box, x(box.first), x(box.end), _TOP + top, tall))
    y = _TOP + _TALL + 18
    for round in _ticks(starts, end, _WIDE / (end - first)):
        name = words.round_name(round, rounds)
        parts.append(text((x(round) + x(round + 1)) / 2, y, name, "tick", "middle"))
    parts.append(text(_LEFT, y + 20, "round; end: after the last one", "tick"))
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


def _drawn(box: _Box, left: float, right: float, top: float, tall: float) -> Markup:
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
