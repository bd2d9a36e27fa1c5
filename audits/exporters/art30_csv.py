"""A draft of the record of processing activities (GDPR, Article 30(1)), as CSV.

One row per item that left and the roles between which it went. The columns follow points (a) to (g)
of Article 30(1). What the record of a run cannot know stays empty, and the last column names it.
"""

from __future__ import annotations

import csv
import io

from audits.exporters.assessment import persons
from audits.report import words
from audits.report.models import Egress, Report

PEOPLE = (
    "(a) controller: name and contact details",
    "(a) joint controllers, representative, data protection officer",
    "(b) purposes of the processing",
    "(c) categories of data subjects",
    "(c) categories of personal data",
    "(e) third countries or international organisations",
    "(e) safeguards for transfers",
    "(f) time limits for erasure",
    "(g) organisational security measures",
)
"""Columns that only people can fill in."""

COLUMNS = (
    "record",
    *PEOPLE[:3],
    "(b) what was computed",
    *PEOPLE[3:5],
    "(c) what left, technically",
    "(d) sender",
    "(d) categories of recipients",
    "(d) who else learns what",
    *PEOPLE[5:8],
    "(g) technical security measures",
    PEOPLE[8],
    "envelopes",
    "bytes",
    "first entry of the ledgers",
    "last entry of the ledgers",
    "evidence",
    "to be filled in by people",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def export(report: Report) -> bytes:
    """Return the CSV (RFC 4180, UTF-8)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in report.egress:
        facts = _facts(report, row)
        writer.writerow([_cell(facts.get(name, "")) for name in COLUMNS])
    return out.getvalue().encode("utf-8", "replace")


def _facts(report: Report, row: Egress) -> dict[str, str]:
    subject = report.subject
    learns = "; ".join(f"{words.role(role)}: {what}" for role, what in row.learns.items())
    fields = "; ".join(f"{f.meaning} ({f.unit})" for m in row.messages for f in m.fields)
    return {
        "record": f"{row.item} of run {subject.run}",
        "(b) what was computed": report.scope.purpose,
        "(c) what left, technically": fields or row.meaning,
        "(d) sender": _role(report, row.sender_role),
        "(d) categories of recipients": _role(report, row.recipient_role),
        "(d) who else learns what": learns,
        "(g) technical security measures": f"{words.protection(row.protection)}: "
        f"{' > '.join(row.protection) or 'none'}; persons at a site: {persons(report) or '-'}",
        "envelopes": str(row.count),
        "bytes": str(row.bytes),
        "first entry of the ledgers": subject.first_entry,
        "last entry of the ledgers": subject.last_entry,
        "evidence": f"{'as planned' if row.planned else 'NOT PLANNED'}; plan "
        f"{subject.plan_digest}; evidence: {report.integrity.verdict}",
        "to be filled in by people": "; ".join(PEOPLE),
    }


def _role(report: Report, role: str) -> str:
    """Return a role, how many parties were in it, and their organisations where a charter has them.

    Names of parties are for people to add.
    """
    parties = [party for party in report.parties if party.role == role]
    if not parties:
        return words.role(role)
    named = ", ".join(dict.fromkeys(p.organisation for p in parties if p.organisation))
    return f"{words.role(role)} ({len(parties)} in the run{f': {named}' if named else ''})"


def _cell(text: str) -> str:
    """Return a cell that no spreadsheet takes for a formula: names come from strangers."""
    return f"'{text}" if text.startswith(_FORMULA) else text
