"""HTML: one file without scripts or outside references, for people to read and print."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from audits.attacks._shared.payloads import PAYLOADS
from audits.findings.limitations import named
from audits.plots import budget_timeline as timeline
from audits.plots import clusters, curves, dots, flows, seen, stacks, svg
from audits.report import attack_words, words
from audits.report.models import Denied, Egress, PartyFacts, Report, Vanished
from audits.report.sections import Labelled, RoundBytes
from protocols.plan.learns import grade, odds

FORMAT = "html"
FILES = ("report.html",)
_TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
MOST_ROUTES = 400  # rows of a table that may be long; beyond, inventory.csv or report.json has them
NAMED = 3  # of parties that sent and received alike; more are counted
MOST_BARS = 8  # of the chart by message; the rest is one bar
OPEN_ROWS = 12  # likewise rounds and changes
CONTENTS = (
    ("scope", "Scope"),
    ("plan", "Plan and actual"),
    ("left", "What left"),
    ("budget", "Privacy budget"),
    ("attacks", "Attacks"),
    ("claims", "Claims"),
    ("findings", "Findings"),
    ("changes", "Changes"),
    ("obligations", "Obligations"),
    ("method", "Method and limits"),
    ("evidence", "Evidence"),
)


def _shown(value: object) -> object:
    """Return a value as a page shows it; pictures, made here, stay markup."""
    if isinstance(value, Markup):
        return Markup(words.visible(value))  # noqa: S704 - it was markup
    return words.visible(value) if isinstance(value, str) else value


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES, encoding="utf-8"),
        autoescape=True,  # names come from other organisations
        finalize=_shown,
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
        verdict=attack_words.verdict,
        reading=attack_words.reading,
        clients=attack_words.clients,
        power=attack_words.power,
        atleast=attack_words.show,
        slug=lambda text: "".join(c if c.isalnum() else "-" for c in text.lower()),
        part=_part,
        shared=_shared,
        alike=_alike,
        called=_called,
        odds=lambda account: odds(account.recorded, account.unit),
        grade=grade,
        together=_together,
        more=named,
    )
    made.globals.update(
        maybe_opened=words.maybe_opened,
        plural=words.plural,
        power_means=attack_words.POWER,
        span=words.span,
        split=words.split,
        round_name=words.round_name,
        meter=svg.meter,
        payloads=PAYLOADS,
        named=words.NAMES,
        contents=CONTENTS,
        most_routes=MOST_ROUTES,
        open_rows=OPEN_ROWS,
    )
    return made


def _part(row: RoundBytes, route: tuple[str, str]) -> int:
    """Return the bytes of one route in one round."""
    return sum(part.bytes for part in row.parts if (part.sender, part.recipient) == route)


def _shared(rows: Sequence[Labelled]) -> list[str]:
    """Return the assumptions that every epsilon of a table makes."""
    return [
        text
        for text in (rows[0].epsilon.assumptions if rows else ())
        if all(text in row.epsilon.assumptions for row in rows)
    ]


def _alike(parties: Sequence[PartyFacts]) -> list[list[PartyFacts]]:
    """Return the parties in groups of one role that sent and received alike, in their order."""
    groups: dict[tuple[object, ...], list[PartyFacts]] = {}
    for one in parties:
        key = (one.role, one.sent, one.sent_bytes, one.received, one.received_bytes, one.refusals)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _together(rows: Sequence[Vanished | Denied]) -> list[list[Vanished | Denied]]:
    """Return rows in groups that say the same of different parties, in their order."""
    groups: dict[str, list[Vanished | Denied]] = {}
    for row in rows:
        said = row.model_dump_json(exclude={"client", "party", "entry"})
        groups.setdefault(said, []).append(row)
    return list(groups.values())


def _called(group: Sequence[object], attribute: str = "name") -> str:
    """Return the names of a group: all of a few, else the first and how many there are."""
    names = ", ".join(str(getattr(one, attribute)) for one in group[:NAMED])
    return f"{names}, ... ({len(group)} in all)" if len(group) > NAMED else names


def render(report: Report) -> dict[str, bytes]:
    """Return ``report.html``."""
    page = _environment().get_template("report.html.j2")
    text = page.render(report=report, subject=report.subject, charts=_charts(report))
    return {FILES[0]: text.encode("utf-8")}


def _charts(report: Report) -> dict[str, Any]:
    split = report.clusters
    return {
        "clusters": clusters.clusters(split, report.subject.rounds) if split else Markup(""),
        "flows": flows.flows(report.scope.flows),
        "stacks": stacks.stacks(report.rounds),
        "routes": stacks.routes(report.rounds),
        "bars": _bars(report),
        "timelines": [
            timeline.timeline(s, f"timeline-{n}") for n, s in enumerate(report.spending, 1)
        ],
        "attacks": dots.attacks(report.attacks),
        "claims": dots.claims(report.claims),
        "curves": curves.charts(report.curves),
        "seen": seen.matrix(report.egress, (party.role for party in report.parties)),
    }


def _bars(report: Report) -> Markup:
    """Return the largest kinds of envelope, what left in clear among them in any case."""
    most = max((row.bytes for row in report.egress), default=0) or 1
    order = sorted(report.egress, key=lambda row: (not row.unsafe, -row.bytes))
    shown = sorted(order[:MOST_BARS], key=lambda row: -row.bytes)
    rows = [svg.Bar(_label(row), _value(row), row.bytes / most, row.unsafe) for row in shown]
    if rest := order[MOST_BARS:]:
        left = sum(row.bytes for row in rest)
        unsafe = any(row.unsafe for row in rest)
        value = f"{words.size(left)}{' UNSAFE in part' if unsafe else ''}"
        rows.append(svg.Bar(f"{len(rest)} other kinds together", value, left / most, unsafe))
    heavy = _label(max(report.egress, key=lambda row: row.bytes)) if order else "nothing"
    return svg.bars(
        "egress",
        "Bytes that left, by route and message",
        f"{len(rows)} bars, the largest kind is {heavy}. All numbers stand in the table that "
        "follows.",
        rows,
    )


def _label(row: Egress) -> str:
    """Return the item; the route stands beside the size, so that neither is cut."""
    return row.item


def _value(row: Egress) -> str:
    """Return route and size; UNSAFE stands here, as a long label may be cut."""
    route = f"{words.role(row.sender_role)} → {words.role(row.recipient_role)}"
    return f"{route}, {words.size(row.bytes)}{' UNSAFE' if row.unsafe else ''}"
