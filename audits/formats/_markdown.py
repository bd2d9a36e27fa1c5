"""Markdown tables and escaping, and the two sections on attacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from audits.attacks._shared.models import AttackRow, NotTested, Value
from audits.attacks._shared.payloads import PAYLOADS
from audits.report.attack_words import POWER, clients, reading, show, verdict
from audits.report.models import Report
from audits.report.words import visible

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~])")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are escaped already."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(text: str) -> str:
    """Escape what Markdown or HTML would read as markup; one line only."""
    return _SPECIAL.sub(r"\\\1", visible(" ".join(text.split()))).replace("://", ":&#47;&#47;")


def code(text: str) -> str:
    """Return a text for use between back-ticks."""
    return visible(text.replace("`", "'"))


def attacks(report: Report) -> str:
    """Return section 5."""
    parts = [plain(report.tried.state)]
    if report.attacks:
        parts.append(tried(report.attacks))
        parts.append(_reading(report))
    if report.not_tested:
        parts.append(untried(report.not_tested))
    return "\n\n".join([*parts, *_at_sites(report), *_rehearsed(report)])


def tried(found: Sequence[AttackRow]) -> str:
    """Return the table of attacks."""
    rows = (
        (
            plain(f"{row.id} {row.name}"),
            plain(f"{row.payload} {row.what}"),
            f"**{verdict(row)}**",
            plain(row.metric) if row.protected is not None else "",
            row.chance,
            *map(_value, (row.prior, row.null, row.protected, row.raw, row.gap)),
            row.margin if row.protected is not None else "",
            clients(row),
            f"{show(row.n_pos)}; {show(row.n_neg)}" if row.n_pos or row.n_neg else "",
            row.detectable,
            plain(row.reason),
        )
        for row in found
    )
    header = ("attack", "payload", "verdict", "metric", "chance", "prior", "null", "protected",
              "raw", "gain", "margin", "clients", "records", "power", "why")  # fmt: skip
    return table(header, rows)


def untried(found: Sequence[NotTested]) -> str:
    """Return the table of payloads that no attack looked at."""
    untested = (
        (row.payload, plain(PAYLOADS[row.payload]), "**NOT TESTED**", plain(row.why))
        for row in found
    )
    return table(("payload", "what it is", "state", "why"), untested)


def _at_sites(report: Report) -> list[str]:
    """Return what sites found at their own side, over sites; nothing where none handed any on."""
    found = report.at_sites
    if found is None:
        return []
    rows = (
        (
            plain(f"{row.id} {row.name}"),
            plain(f"{row.payload} {row.what}"),
            f"**{verdict(row)}**",
            plain(row.metric),
            *map(_value, (row.prior, row.null, row.protected, row.raw, row.gap)),
            str(row.n_clients),
            row.detectable,
            plain(row.reason),
        )
        for row in found.rows
    )
    header = ("attack", "payload", "verdict", "metric", "prior", "null", "protected", "raw",
              "gain", "sites", "power", "why")  # fmt: skip
    handed = [
        f"- {plain(one.party)}: {', '.join(one.attacks) or 'none'}"
        + (f"; kept there: {', '.join(one.withheld)}" if one.withheld else "")
        for one in found.handed
    ]
    gone = [f"- {plain(name)}: sent none" for name in found.missing]
    other = [f"- {plain(name)}: of another version, not counted" for name in found.other_version]
    return [
        "### At sites",
        plain(found.note),
        "\n".join([*handed, *gone, *other]),
        table(header, rows),
    ]


def _rehearsed(report: Report) -> list[str]:
    """Return what a rehearsal says of what was not tested; nothing without one."""
    found = report.rehearsed
    if found is None:
        return []
    rows = (
        (
            plain(f"{row.id} {row.name}"),
            plain(f"{row.payload} {row.what}"),
            f"**{row.in_run.replace('_', ' ')}**",
            f"REHEARSAL: {row.rehearsed.replace('_', ' ')}",
            plain(row.metric),
            row.prior,
            row.left,
            row.detectable,
            plain(row.reason),
        )
        for row in found.rows
    )
    header = (
        "attack", "payload", "in this run", "rehearsed", "metric", "prior", "protected", "power",
        "why",
    )  # fmt: skip
    facts = (*found.differs, *found.cannot)
    return [
        "### REHEARSAL",
        plain(
            "Another run of this plan, played before with everything captured. Its verdicts are "
            f"no verdicts on this run. {found.here} clients were played on data that were there, "
            f"{found.stand_ins} on data that were drawn."
        ),
        table(header, rows),
        "\n".join(f"- {plain(fact)}" for fact in facts),
        f"Plan `{code(found.plan_digest)}`, played as `{code(found.played_digest)}`.",
    ]


def _reading(report: Report) -> str:
    known = {row.id: row.name for row in report.attacks}
    lines = (f"- {plain(f'{id} {name}: {reading(id)}')}" for id, name in known.items())
    return f"How to read a row:\n\n- {plain(POWER)}\n" + "\n".join(lines)


def _value(found: Value | None) -> str:
    return f"{found.value} ({found.low} to {found.high})" if found is not None else ""


def claims(report: Report) -> str:
    """Return section 6."""
    if not report.claims:
        return "No claim was held against evidence in this run."
    rows = (
        (
            plain(row.text),
            f"**{row.status.replace('_', ' ')}**",
            plain(row.unit),
            row.epsilon_claim,
            row.epsilon_lb,
            row.ceiling,
            row.confidence,
            str(row.trials),
        )
        for row in report.claims
    )
    header = ("claim", "state", "unit", "claimed ε", "at least", "ceiling", "confidence", "trials")
    return table(header, rows)
