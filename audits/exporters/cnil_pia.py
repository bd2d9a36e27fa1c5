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

from audits.explain import find
from audits.report import words
from audits.report.models import Report

NAME = "cnil-pia"
FILE = "pia-draft.json"

_ID = 1  # the tool gives a new one on import
MEASURES = {
    "clip": ("Bounded contributions", "Every value is cut at a bound before it leaves."),
    "quantise": ("Fixed grid", "Values are rounded at random to a grid, so that sums are exact."),
    "noise": ("Noise in the sum", "Each client adds its share of noise before its part leaves."),
    "own_noise": (
        "Noise of each client's own",
        "Each client adds noise that hides its data whoever else works together.",
    ),
    "record_noise": (
        "Noise on counts",
        "Each client adds noise to what it counts, so that no single record shows in it.",
    ),
    "mask": ("Masked sums", "Each part is hidden by masks that cancel only in the total."),
    "mask_neighbours": (
        "Masked sums over neighbours",
        "Each client reads the sum of its neighbours' models alone, under masks that nobody can "
        "rebuild; a sum that lacks one of them is not opened.",
    ),
    "he": ("Encrypted sums", "Parts are added up encrypted; only totals are opened."),
    "normalise": ("Directions only", "Vectors are brought to length 1 before they are compared."),
    "cosine": (
        "Encrypted comparison",
        "Vectors are compared encrypted; one rounded cosine per pair is opened, after witnesses "
        "have computed it again.",
    ),
    "weigh": (
        "Encrypted weighting",
        "Models are weighed encrypted; each client opens its own combination alone, and every "
        "combination rests on enough others.",
    ),
    "mix": (
        "Mixed records",
        "Records leave only inside means over several of them, in groups that are drawn once and "
        "kept secret.",
    ),
    "blur": ("Noise on mixtures", "Noise is added to every mixture, without a formal guarantee."),
    "decoys": (
        "Rows that hold nothing",
        "Rows of items that a person has nothing to do with are sent beside his own; decoys that "
        "are drawn afresh each round are told apart over rounds.",
    ),
    "laplace": (
        "Noise on single rows",
        "Noise of a bounded privacy loss per value is added before a row leaves; over all values "
        "and rounds the loss adds up.",
    ),
    "relay": (
        "A relay for mixtures or noised messages",
        "Another organisation takes the senders off mixtures or noised messages, and opens none of "
        "them; what they hold may still hint at whose they are.",
    ),
    "match": (
        "Matched by tags",
        "Items are compared by tags, whose key two servers share or, in the mode hmac, all clients "
        "hold; in the mode deterministic anybody makes them, and they hide nothing. What people "
        "carry is read only as means over small groups, or in the form 'published' one by one, "
        "with noise.",
    ),
    "rows": (
        "Sums of neighbours found by tags",
        "Features of nodes that people's edges lead to are read only as sums over several others, "
        "each in one sum at most; what a sum of few sparse records tells is not bounded. In the "
        "form 'published' they are read as each client adds them up; in the form 'noised' any sum "
        "is read, each client's part under its own noise.",
    ),
    "row_noise": (
        "Noise on sums of neighbours",
        "Each client adds noise to what it adds to such sums, so that the features of no single "
        "node show in them; who is linked to whom is not covered.",
    ),
    "ckks": ("Encrypted sums", "Parts are added up encrypted; only totals are opened."),
    "seal": ("Sealed envelopes", "Each message is encrypted to the one party that it is for."),
    "sign": ("Signed envelopes", "Each message is signed by its sender and bound to run and plan."),
}
"""Guard of the policy -> title and description of the measure."""


def export(report: Report) -> bytes:
    """Return the JSON, indented, ASCII only."""
    measures = _measures(report)
    document = {
        "pia": _pia(report),
        "answers": [
            _answer(121, text=_data(report)),
            _answer(122, text=_life(report)),
            _answer(123, text=_assets(report)),
            _answer(321, rows=_impacts(report)),
            _answer(322, rows=_threats(report)),
            _answer(323, rows=_sources(report)),
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


def _sent(report: Report) -> list[str]:
    return sorted({payload for row in report.egress for payload in row.payloads})


def _impacts(report: Report) -> list[str]:
    """321: what each kind of payload can reveal, in the words of ``audit explain``."""
    return [
        f"{page.word} {page.title}: {dict(page.sections)['What it still reveals']}"
        for word in _sent(report)
        for page in find(word)
        if page.kind == "payload"
    ]


def _threats(report: Report) -> list[str]:
    """322: the questions that attacks asked, with their verdicts, and what nobody asked."""
    tried = [f"{row.question} ({row.id} on {row.payload}: {row.verdict})" for row in report.attacks]
    return tried + [f"{row.payload} was not tested: {row.why}" for row in report.not_tested]


def _sources(report: Report) -> list[str]:
    """323: who could see what."""
    return [f"{words.role(view.viewer)}: {'; '.join(view.sees)}" for view in report.views]


def _measures(report: Report) -> list[tuple[str, str]]:
    """Return the measures that were in force, each once."""
    used = {words.guard(guard) for row in report.egress for guard in row.protection}
    found = dict(text for guard, text in MEASURES.items() if guard in used)
    subject = report.subject
    found["One door and an approved plan"] = (
        f"Only what the plan {subject.plan_digest} lists can leave. Unplanned releases: "
        f"{len(report.plan_diff.unplanned)}; refused requests: {len(report.plan_diff.denied)}."
    )
    found["Signed ledgers"] = (
        f"Every party keeps a signed ledger of what it sent and received. Evidence: "
        f"{report.integrity.verdict}."
    )
    found["Smallest cohort"] = (
        f"Totals are opened over at least {words.plural(subject.smallest_cohort, 'client')}."
    )
    for row in report.accounting:
        if row.covered:
            found[f"Privacy budget of a {row.unit}"] = row.statement
    return list(found.items())
