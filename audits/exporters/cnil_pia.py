"""A draft for the impact assessment tool of the CNIL (https://github.com/LINCnil/pia), as JSON.

The tool imports an object ``{pia, answers, measures, evaluations, comments}``; the numbers of its
questions are those of its architecture file (version 3: 121 data, 122 life cycle, 123 supporting
assets; 321 impacts, 322 threats, 323 sources and 324 measures of an illegitimate access). Gauges,
evaluations, opinions and names are left empty: gravity, likelihood and validation are for people.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

from audits.exporters import _drafts
from audits.report import words
from audits.report.models import Report

NAME = "cnil-pia"
FILE = "pia-draft.json"

_ID = 1  # the tool gives a new one on import


def export(report: Report) -> bytes:
    """Return the JSON, indented, ASCII only."""
    measures = _drafts.measures(report)
    document = {
        "pia": _pia(report),
        "answers": [
            _answer(121, text=_data(report)),
            _answer(122, text=_life(report)),
            _answer(123, text=_assets(report)),
            _answer(321, rows=_drafts.impacts(report)),
            _answer(322, rows=_drafts.threats(report)),
            _answer(323, rows=_drafts.sources(report)),
            _answer(324, rows=[title for title, _ in measures]),
        ],
        "measures": [
            {"pia_id": _ID, "title": title, "content": _paragraph(content), "placeholder": ""}
            for title, content in measures
        ],
        "evaluations": [],
        "comments": [],
    }
    text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    return text.encode("ascii")


def _pia(report: Report) -> dict[str, Any]:
    """Return the head: a draft of which nobody is author, evaluator or validator yet."""
    subject = report.subject
    return {
        "id": _ID,
        "name": f"DRAFT: {subject.algorithm} on {subject.dataset}, run {subject.run[:8]}",
        "category": "",
        "author_name": "",
        "evaluator_name": "",
        "validator_name": "",
        "status": 0,
        "is_example": 0,
        "is_archive": 0,
        "structure_id": "",
        "created_at": subject.last_entry,
    }


def _answer(number: int, *, text: str | None = None, rows: Sequence[str] = ()) -> dict[str, Any]:
    data = {"text": text, "gauge": None, "list": list(rows)}
    return {"pia_id": _ID, "reference_to": number, "data": data}


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines) + "</ul>"


def _data(report: Report) -> str:
    """121: what left; what stays at the clients is for people to list."""
    facts = "; ".join(f"{fact.name}: {fact.value}" for fact in report.scope.data)
    items = (
        f"{row.item}: "
        f"{'; '.join(f.meaning for m in row.messages for f in m.fields) or row.meaning}. "
        f"{words.role(row.sender_role)} to {words.role(row.recipient_role)}, "
        f"{words.plural(row.count, 'envelope')}, {words.protection(row.protection)}."
        for row in report.egress
    )
    return (
        _paragraph(f"Data that stay at the clients ({facts}). Categories of persons and of data, "
                   "and how long they are kept: to be filled in.")
        + _paragraph(f"What {report.side} alone sent:" if report.side
                     else "What the parties sent each other:")
        + _list(items)
    )  # fmt: skip


def _life(report: Report) -> str:
    """122: how it was computed, and what went from whom to whom."""
    flows = (
        f"{words.role(flow.sender)} to {words.role(flow.recipient)}: "
        f"{words.plural(flow.count, 'envelope')}, {words.size(flow.bytes)}; "
        f"{', '.join(flow.protection)}."
        for flow in report.scope.flows
    )
    return _paragraph(f"{report.scope.purpose} {report.summary}") + _list(flows)


def _assets(report: Report) -> str:
    """123: roles and transport; machines and people are not in a run's files."""
    roles: dict[str, int] = {}
    for party in report.parties:
        roles[party.role] = roles.get(party.role, 0) + 1
    lines = [f"{words.role(role)}: {count}" for role, count in roles.items()]
    return _paragraph(
        f"Transport: {report.transport}. Parties by role are listed below; machines, networks, "
        "premises and people: to be filled in."
    ) + _list(lines)
