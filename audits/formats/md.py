"""Markdown: the report's sections as tables, for a review thread or a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from audits.accounting.calibration import Calibrated
from audits.accounting.empirical import Empirical
from audits.findings.limitations import named
from audits.formats import _markdown as tried
from audits.formats._markdown import code as _code
from audits.formats._markdown import plain as _
from audits.formats._markdown import table as _table
from audits.report import words
from audits.report.models import Finding, Report

FORMAT = "md"
FILES = ("report.md",)
_MOST = 100  # rows of drop-outs and weights; report.json has all


def render(report: Report) -> dict[str, bytes]:
    """Return ``report.md``: sections 0 to 12, in the order of the page."""
    subject = report.subject
    blocks = [
        f"# What left each client: {_(subject.algorithm)} on {_(subject.dataset)}",
        *(f"> **{_(note)}**" for note in report.notes),
        _(report.summary),
        _table(
            ("question", "state", "answer"),
            ((_(x.question), f"**{x.state}**", _(x.answer)) for x in report.verdict_strip),
        ),
        "## 1. Scope",
        _scope(report),
        "## 2. Plan against actual",
        _plan(report),
        *_clusters(report),
        "### Drop-outs",
        _gone(report),
        "## 3. What left, by role",
        _egress(report),
        *_rows(report),
        "### Who could see what",
        "\n".join(
            f"- **{_(words.role(view.viewer))}**: {_('; '.join(view.sees)) or 'nothing'}"
            for view in report.views
        ),
        "## 4. Privacy budget",
        _budget(report),
        "## 5. Attacks",
        tried.attacks(report),
        "## 6. Claims and evidence",
        tried.claims(report),
        "## 7. Findings",
        _findings(report),
        "## 8. Changes since the baseline",
        _changes(report),
        "## 9. Obligations and evidence",
        _obligations(report),
        "## 10. Method, and what this report does not show",
        _method(report),
        "## 11. Integrity",
        f"**{_(report.integrity.verdict)}**",
        _table(
            ("step", "status", "detail"),
            ((_(s.name), f"**{s.status}**", _(s.detail)) for s in report.integrity.steps),
        ),
        f"Run `{_code(subject.run)}`, plan `{_code(subject.plan_digest)}`, policy "
        f"`{_code(subject.policy_digest)}`.",
    ]
    return {FILES[0]: ("\n\n".join(blocks) + "\n").encode("utf-8")}


def _scope(report: Report) -> str:
    rows = (
        (
            _(f"{words.role(flow.sender)} → {words.role(flow.recipient)}"),
            str(flow.count),
            words.size(flow.bytes),
            _("; ".join(flow.protection)),
        )
        for flow in report.scope.flows
    )
    return "\n\n".join(
        (
            _(report.scope.purpose),
            "\n".join(f"- {_(fact.name)}: {_(fact.value)}" for fact in report.scope.data),
            _table(("route", "envelopes", "size", "protection"), rows),
            *_named(report),
            "The files of a run do not hold: " + _("; ".join(report.scope.unknown)) + ".",
        )
    )


def _named(report: Report) -> list[str]:
    """Return who is where and whose it is, where a charter says so."""
    rows = [
        (_(party.name), _(words.role(party.role)), _(party.organisation))
        for party in report.parties
        if party.organisation
    ]
    return [_table(("party", "role", "organisation"), rows)] if rows else []


def _budget(report: Report) -> str:
    lines = [
        f"- {_(account.statement)}. By attack: {_by_attack(account.empirical)}; "
        f"{_(account.empirical.why)}."
        for account in report.accounting
    ]
    parts = ["\n".join(lines)]
    for spent in report.spending:
        rows = (
            (
                _(row.what), row.epsilon.value, _by_attack(row.empirical), row.epsilon.delta,
                row.epsilon.unit,
                row.epsilon.adjacency, row.epsilon.model, row.epsilon.scope,
                _("; ".join(row.epsilon.assumptions)),
            )
            for row in spent.rows
        )  # fmt: skip
        header = (
            "of what", "ε", "by attack", "δ", "unit", "adjacency", "trust model", "scope",
            "assumes",
        )  # fmt: skip
        parts.append(_table(header, rows))
        if spent.calibrated:
            parts.append(_calibrated(spent.calibrated))
    return "\n\n".join(parts)


def _by_attack(found: Empirical) -> str:
    """Return the word beside an epsilon, and the ceiling of what was tried."""
    return f"**{found.word}**" + (f", ceiling {found.ceiling}" if found.ceiling else "")


def _calibrated(found: Sequence[Calibrated]) -> str:
    header = (
        "own noise on", "numbers", "noise : signal at the plan's clients",
        "clients from which the mean's error is below the clip", "fewest that answered an Ask",
        "noise : signal there", "ε spent on it",
    )  # fmt: skip
    rows = (
        (
            _(row.item), str(row.entries), f"{row.ratio} at {row.planned}", str(row.needed),
            f"{row.answered}, of {row.asks} Asks", row.answered_ratio, row.spent.value,
        )
        for row in found
    )  # fmt: skip
    return _table(header, rows)


def _changes(report: Report) -> str:
    moved = report.changes
    if moved is None:
        return "There is no baseline to compare with."
    line = (
        f"Baseline: run `{_code(moved.baseline_run)}`. Changes: {len(moved.changes)}; "
        f"as they were: {moved.same}."
    )
    notes = [_(note) for note in moved.notes]
    rows = (
        (row.move, row.kind, _(row.what), row.severity, _(row.old), _(row.new))
        for row in moved.changes[:_MOST]
    )
    table = _table(("change", "kind", "what", "severity", "before", "now"), rows)
    return "\n\n".join((line, *notes, *((table,) if moved.changes else ())))


def _obligations(report: Report) -> str:
    rows = (
        (_(row.regime), _(row.asks), _("; ".join(row.evidence)), _(row.people))
        for row in report.obligations
    )
    said = "Where to look for evidence. Whether an obligation is met is for people to judge."
    return f"{said}\n\n{_table(('regime', 'asks for', 'evidence', 'people supply'), rows)}"


def _method(report: Report) -> str:
    found = report.method
    facts = [f"{fact.name}: {fact.value}" for fact in found.facts]
    limits = "\n".join(f"- {_(limit)}" for limit in report.limits)
    how = "\n".join(f"- {_(text)}" for text in (*found.how, *facts))
    if report.references:
        rows = [(_(fact.name), fact.value) for fact in report.references]
        how += f"\n\n### References\n\n{_table(('reference', 'test score'), rows)}"
    return f"{how}\n\n### What this report does not show\n\n{limits}"


def _egress(report: Report) -> str:
    rows = (
        (
            _(f"{words.role(row.sender_role)} → {words.role(row.recipient_role)}"),
            _(row.item),
            _("+".join(message.name for message in row.messages)),
            _(words.protection(row.protection)),
            str(row.count),
            words.size(row.bytes),
            words.span(row.first_round, row.last_round),
        )
        for row in report.egress
    )
    return _table(("route", "item", "messages", "protection", "envelopes", "size", "rounds"), rows)


def _rows(report: Report) -> list[str]:
    """Return the table of weighted rows; nothing if no client was handed one."""
    if not report.rows:
        return []
    rows = (
        (
            str(row.round),
            str(row.receivers),
            str(row.flattened),
            row.group,
            f"{row.rank} of {row.others}",
            str(row.solved),
        )
        for row in report.rows[:_MOST]
    )
    header = ("round", "rows", "flattened", "fewest others in effect", "rank so far", "solved")
    return ["### Weighted rows", _table(header, rows)]


def _plan(report: Report) -> str:
    diff = report.plan_diff
    rows = ((_(c.item), str(c.planned), str(c.seen), words.size(c.seen_bytes)) for c in diff.items)
    line = (
        f"Unplanned: {len(diff.unplanned)}. Refused: {len(diff.denied)}. "
        f"Planned and never seen: {len(diff.missing)}."
    )
    return f"{line}\n\n{_table(('item', 'planned at most', 'seen', 'size'), rows)}"


def _clusters(report: Report) -> list[str]:
    """Return the clusters over the rounds; nothing where the form never splits."""
    found = report.clusters
    if found is None:
        return []
    rows = (
        (
            words.round_name(row.round, report.subject.rounds),
            ", ".join(map(str, row.sizes)),
            str(row.apart),
            ", ".join(map(str, row.signed)),
        )
        for row in found.rows[:_MOST]
    )
    header = ("from round", "clients in each cluster", "asked in none", "cut signed in round")
    return ["### Clusters", words.split(found.signed, found.unused), _table(header, rows)]


def _gone(report: Report) -> str:
    gone = report.dropouts
    lines = [
        f"Vanished: {len(gone.vanished)}. Rounds skipped: {len({x.round for x in gone.lost})}."
        f"{words.maybe_opened(gone.openable)}"
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
        (
            f.id,
            f"**{f.severity}**",
            _(f.rule),
            _(f.message),
            _(named(f.remediation, f.limitation)),
            _(_accepted(f)),
        )
        for f in report.findings
    )
    return _table(("id", "severity", "rule", "what", "what to do", "accepted"), rows)


def _accepted(finding: Finding) -> str:
    found = finding.waiver
    if found is None:
        return ""
    return f"by {found.owner} until {found.until} (judged {found.judged}): {found.reason}"
