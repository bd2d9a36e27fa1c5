"""Dots with intervals on one axis: the five marks of an attack, and claims beside bounds."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from audits.attacks._shared.models import AttackRow, Claim, Value
from audits.plots.svg import at, figure, line, text
from audits.report.attack_words import verdict

MOST = 40  # rows of one chart; the table has all
_LINE, _STEP, _LEGEND = 19, 13, 22  # pixels: a line of text, one mark, one line of the legend
_WIDE = 46  # characters of a line on a narrow screen; nothing is cut, a longer text takes more

_SHAPES = {
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
    for number, (kind, words) in enumerate(legend):
        said = Markup('<text x="30">{}</text>').format(words)
        parts.append(at(0, _LEGEND * number + 15, said))
        parts.append(at(0, _LEGEND * number + 10, Markup('<g transform="translate(11)">')
                        + Markup(_SHAPES[kind]) + Markup("</g>")))  # noqa: S704 # fmt: skip
    top = _LEGEND * len(legend) + 10
    for block in blocks:
        parts.append(_block(block, top, count))
        top += _words_height(block) + _STEP * count + 34
    return figure("dots", name, title, description, top, parts)


def _said(block: _Block) -> list[tuple[str, str]]:
    """Return the lines of text above the marks, each with its class."""
    return [
        (said, kind)
        for words, kind in ((block.title, "value"), (block.detail, "soft"))
        for said in textwrap.wrap(words, _WIDE)
    ]


def _words_height(block: _Block) -> int:
    return _LINE * len(_said(block)) + 6


def _block(block: _Block, top: int, count: int) -> Markup:
    ends = [x for m in block.marks for x in (m.low, m.high)] + [0.0, block.limit or 0.0]
    low, high = min(ends), max([*ends, 1.0])
    high = high if high == 1.0 else high + 0.05 * (high - low)

    def x(value: float) -> float:
        return 3 + 94 * (value - low) / (high - low)

    first = top + _words_height(block) + 8
    floor = first + _STEP * count
    parts = [
        *(text(0, top + 16 + _LINE * n, *said) for n, said in enumerate(_said(block))),
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
        parts.append(at(x(mark.value), y, Markup(_SHAPES[mark.kind])))  # noqa: S704 - a constant
    return Markup("").join(parts)
