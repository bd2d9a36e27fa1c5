"""HTML: one file without scripts or outside references, for people to read and print."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from audits import svg, words
from audits.models import Egress, Report

FORMAT = "html"
FILES = ("report.html",)
_TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
MOST_ROUTES = 400  # rows of the per-route table; beyond, inventory.csv has them
OPEN_PARTIES = 24  # with more parties, their table starts folded


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES, encoding="utf-8"),
        autoescape=True,  # names come from other organisations
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(
        size=words.size,
        number=words.number,
        decimal=words.decimal,
        role=words.role,
        protection=words.protection,
        mark=svg.mark,
        slug=lambda text: "".join(c if c.isalnum() else "-" for c in text.lower()),
    )
    made.globals.update(plural=words.plural, span=words.span, meter=svg.meter)
    return made


def render(report: Report) -> dict[str, bytes]:
    """Return ``report.html``."""
    page = _environment().get_template("report.html.j2")
    text = page.render(
        report=report,
        subject=report.subject,
        chart=_chart(report),
        most_routes=MOST_ROUTES,
        open_parties=OPEN_PARTIES,
    )
    return {FILES[0]: text.encode("utf-8")}


def _chart(report: Report) -> Markup:
    most = max((row.bytes for row in report.egress), default=0) or 1
    rows = [
        svg.Bar(_label(row), _value(row), row.bytes / most, row.unsafe)
        for row in sorted(report.egress, key=lambda row: -row.bytes)
    ]
    heavy = rows[0].label if rows else "nothing"
    return svg.bars(
        "egress",
        "Bytes that left, by route and message",
        f"{len(rows)} bars, the longest is {heavy}. All numbers stand in the table that follows.",
        rows,
    )


def _label(row: Egress) -> str:
    route = f"{words.role(row.sender_role)} → {words.role(row.recipient_role)}"
    return f"{route}: {row.item}"


def _value(row: Egress) -> str:
    """Return the size; UNSAFE stands here, as a long label may be cut."""
    return f"{words.size(row.bytes)}{' UNSAFE' if row.unsafe else ''}"
