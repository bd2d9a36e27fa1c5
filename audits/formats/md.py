"""Markdown: the report's first page and tables, for a review thread or a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from audits import words
from audits.models import Report

FORMAT = "md"
FILES = ("report.md",)
_MOST = 100  # rows of drop-outs; report.json has all
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~])")


def render(report: Report) -> dict[str, bytes]:
    """Return ``report.md``."""
    subject = report.subject
    blocks = [
        f"# What left each client: {_(subject.algorithm)} on {_(subject.dataset)}",
        *(f"> **{_(note)}**" for note in report.notes),
        _(report.summary),
        _table(
            ("question", "state", "answer"),
            ((_(x.question), f"**{x.state}**", _(x.answer)) for x in report.verdict_strip),
        ),
        "## What left, by role",
        _egress(report),
        "## Plan against actual",
        _plan(report),
        "## Drop-outs",
        _gone(report),
        "## Who could see what",
        "\n".join(
            f"- **{_(words.role(view.viewer))}**: {_('; '.join(view.sees)) or 'nothing'}"
            for view in report.views
        ),
        "## Findings",
        _findings(report),
        "## What this report does not show",
        "\n".join(f"- {_(limit)}" for limit in report.limits),
        "## Integrity",
        f"**{_(report.integrity.verdict)}**",
        _table(
            ("step", "status", "detail"),
            ((_(s.name), f"**{s.status}**", _(s.detail)) for s in report.integrity.steps),
        ),
        f"Run `{_code(subject.run)}`, plan `{_code(subject.plan_digest)}`, policy "
        f"`{_code(subject.policy_digest)}`.",
    ]
    return {FILES[0]: ("\n\n".join(blocks) + "\n").encode("utf-8")}


def _egress(report: Report) -> str:
    rows = (
        (
            _(f"{words.role(row.sender_role)} → {words.role(row.recipient_role)}"),
            _("+".join(message.name for message in row.messages)),
            _(words.protection(row.protection)),
            str(row.count),
            words.size(row.bytes),
            words.span(row.first_round, row.last_round),
        )
        for row in report.egress
    )
    return _table(("route", "messages", "protection", "envelopes", "size", "rounds"), rows)


def _plan(report: Report) -> str:
    diff = report.plan_diff
    rows = ((_(c.item), str(c.planned), str(c.seen), words.size(c.seen_bytes)) for c in diff.items)
    line = (
        f"Unplanned: {len(diff.unplanned)}. Refused: {len(diff.denied)}. "
        f"Planned and never seen: {len(diff.missing)}."
    )
    return f"{line}\n\n{_table(('item', 'planned at most', 'seen', 'size'), rows)}"


def _gone(report: Report) -> str:
    gone = report.dropouts
    lines = [
        f"Vanished: {len(gone.vanished)}. Rounds skipped: {len({x.round for x in gone.lost})}."
    ]
    if gone.vanished:
        rows = ((_(v.client), str(v.round), v.moment) for v in gone.vanished[:_MOST])
        lines.append(_table(("client", "round", "how far it came"), rows))
    if gone.lost:
        skipped = ((str(x.round), _(x.ask), str(x.arrived)) for x in gone.lost[:_MOST])
        lines.append(_table(("skipped round", "request", "answers"), skipped))
    return "\n\n".join(lines)


def _findings(report: Report) -> str:
    rows = (
        (f.id, f"**{f.severity}**", _(f.rule), _(f.message), _(f.remediation))
        for f in report.findings
    )
    return _table(("id", "severity", "rule", "what", "what to do"), rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _(text: str) -> str:
    """Escape what Markdown or HTML would read as markup; one line only."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split())).replace("://", ":&#47;&#47;")


def _code(text: str) -> str:
    return text.replace("`", "'")
