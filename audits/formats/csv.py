"""CSV for spreadsheets: the inventory with every fact, and the findings."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from audits import words
from audits.models import Egress, Report

FORMAT = "csv"
FILES = ("inventory.csv", "findings.csv")
_INVENTORY = (
    "sender",
    "sender_role",
    "recipient",
    "recipient_role",
    "item",
    "messages",
    "disclosure",
    "protection",
    "unsafe",
    "count",
    "bytes",
    "clipped",
    "first_round",
    "last_round",
    "fields",
    "learns",
)
_FINDINGS = (
    "id",
    "severity",
    "rule",
    "item",
    "recipient_role",
    "message",
    "remediation",
    "fingerprint",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render(report: Report) -> dict[str, bytes]:
    """Return ``inventory.csv`` and ``findings.csv``."""
    details = {(e.item, e.sender_role, e.recipient_role): e for e in report.egress}
    rows = []
    for row in report.inventory:
        about = details[row.item, row.sender_role, row.recipient_role]
        facts = row.model_dump(mode="json")
        facts["protection"] = " > ".join(row.protection)
        facts["fields"] = _fields(about)
        facts["learns"] = "; ".join(f"{words.role(k)}: {v}" for k, v in about.learns.items())
        rows.append([facts[name] for name in _INVENTORY])
    found = [[getattr(f, name) for name in _FINDINGS] for f in report.findings]
    return {FILES[0]: _table(_INVENTORY, rows), FILES[1]: _table(_FINDINGS, found)}


def _fields(about: Egress) -> str:
    return "; ".join(
        f"{message.name}.{field.name} {field.dtype}{list(field.shape)} {field.unit}: "
        f"{field.meaning}"
        for message in about.messages
        for field in message.fields
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")  # RFC 4180
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue().encode("utf-8")


def _cell(value: object) -> str:
    """Return a cell that no spreadsheet takes for a formula: names come from strangers."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
