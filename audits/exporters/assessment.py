"""A draft of a data protection impact assessment (GDPR, Article 35): one content, two forms.

The steps are the seven that the ICO names for such an assessment. A question bears the number of
the same question in the CNIL's tool (https://github.com/LINCnil/pia), by that tool's architecture
file (version 3): 121 data, 122 life cycle, 123 supporting assets; 321 impacts, 322 threats, 323
sources and 324 measures of an illegitimate access. The Markdown form shows all steps; the JSON form
is the object ``{pia, answers, measures, evaluations, comments}`` that the tool imports.

The record of a run cannot know everything: such lines are left to people. Gauges, evaluations,
opinions and names stay empty, since gravity, likelihood and validation are for people.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from audits.explain import find
from audits.report import words
from audits.report.models import Report
from audits.report.scope import PERSONS

OPEN = "*To be filled in by people:* "
"""Begins every line of the Markdown form that the record of a run cannot fill."""

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


@dataclass(frozen=True)
class Question:
    """What the record of a run answers to one question of the CNIL's tool.

    Attributes:
        number: of the question in that tool.
        title: of the part in the Markdown form.
        intro: prose before the lines; where there is any, the tool shows all as one text.
        lines: one fact each.
        about: a longer text for each line, where the tool keeps one (measures).
    """

    number: int
    title: str
    intro: str
    lines: tuple[str, ...]
    about: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One of the ICO's seven steps: answers of the record, and what is left to people."""

    title: str
    questions: tuple[Question, ...]
    left: tuple[str, ...]


def steps(report: Report) -> tuple[Step, ...]:
    """Return the content of the draft."""
    return (
        Step("identify the need", (), ("why an assessment is needed", "what it is to achieve")),
        Step(
            "describe the processing",
            (_data(report), _life(report), _assets(report)),
            (
                *report.scope.unknown,
                "machines, networks, premises and people behind these parties (CNIL 123)",
            ),
        ),
        Step(
            "consultation",
            (),
            ("whose views are sought, when and how", "which processors and experts are asked"),
        ),
        Step(
            "necessity and proportionality",
            (),
            (
                "the lawful basis; why less data, or another way, would not do (step 6 names the "
                "bounds that were in force)",
                "how people are informed, and how their rights are kept",
                "safeguards for transfers to other countries",
            ),
        ),
        Step(
            "identify and assess risks",
            (_impacts(report), _threats(report), _sources(report)),
            ("likelihood, severity and overall risk of each",),
        ),
        Step(
            "identify measures",
            (_measures(report),),
            ("what risk each leaves; measures outside of the run; who is responsible for them",),
        ),
        Step(
            "sign off",
            (),
            (
                "who approves the measures, and when",
                "who accepts what risk is left; whether the supervisory authority is consulted "
                "first",
                "the advice of the data protection officer, and whether it is followed",
                "who reviews this assessment, and when",
            ),
        ),
    )


def _data(report: Report) -> Question:
    stays = "; ".join(f"{fact.name}: {fact.value}" for fact in report.scope.data)
    sent = tuple(
        f"{row.item}: "
        f"{'; '.join(f.meaning for m in row.messages for f in m.fields) or row.meaning}. "
        f"{words.role(row.sender_role)} to {words.role(row.recipient_role)}, "
        f"{words.plural(row.count, 'envelope')}, {words.protection(row.protection)}"
        f"{'' if row.planned else ', NOT PLANNED'}."
        for row in report.egress
    )
    sender = f"What {report.side} alone sent:" if report.side else "What the parties sent:"
    return Question(121, "Data", f"Data that stay at the clients: {stays}. {sender}", sent)


def _life(report: Report) -> Question:
    flows = tuple(
        f"{words.role(flow.sender)} to {words.role(flow.recipient)}: "
        f"{words.plural(flow.count, 'envelope')}, {words.size(flow.bytes)}; "
        f"{', '.join(flow.protection)}."
        for flow in report.scope.flows
    )
    computed = f"{report.scope.purpose} {report.summary}"
    return Question(122, "What was computed, and how data flowed", computed, flows)


def _assets(report: Report) -> Question:
    """Roles, organisations and transport; machines and people are not in a run's files."""
    roles: dict[str, list[str]] = {}
    for party in report.parties:
        roles.setdefault(party.role, []).append(party.organisation)
    lines = tuple(
        f"{words.role(role)}: {len(of)} "
        f"({', '.join(dict.fromkeys(filter(None, of))) or 'organisation not stated'})"
        for role, of in roles.items()
    )
    return Question(123, "Who took part", f"Transport: {report.transport}. Parties by role:", lines)


def _impacts(report: Report) -> Question:
    """What each kind of payload can reveal, in the words of ``audit explain``."""
    payloads = sorted({payload for row in report.egress for payload in row.payloads})
    lines = tuple(
        f"{page.word} {page.title}: {dict(page.sections)['What it still reveals']}"
        for word in payloads
        for page in find(word)
        if page.kind == "payload"
    )
    return Question(321, "What each kind of message can reveal", "", lines)


def _threats(report: Report) -> Question:
    """What attacks tried, what nobody tried, what was found, and what evidence cannot show."""
    tried = [
        f"{row.question} ({row.id} on {row.payload or 'the run'}: {row.verdict})"
        for row in report.attacks
        if row.verdict != "NOT_APPLICABLE"
    ]
    untested = [f"{row.payload} was not tested: {row.why}" for row in report.not_tested]
    found = [
        f"Finding, {one.severity}: {one.message}"
        f"{'' if one.waiver is None else ' (accepted by somebody; see the report)'}"
        for one in report.findings
    ]
    limits = [f"Not shown by the evidence: {limit}" for limit in report.limits]
    return Question(
        322, "What was tried, and what was not", "", (*tried, *untested, *found, *limits)
    )


def _sources(report: Report) -> Question:
    lines = tuple(f"{words.role(view.viewer)}: {'; '.join(view.sees)}" for view in report.views)
    return Question(323, "Who could see what", "", lines)


def _measures(report: Report) -> Question:
    """The measures that were in force, each once."""
    used = {words.guard(guard) for row in report.egress for guard in row.protection}
    found = dict(text for guard, text in MEASURES.items() if guard in used)
    subject = report.subject
    found["One door and a plan"] = (
        f"Only what the plan {subject.plan_digest} lists can leave. Unplanned releases: "
        f"{len(report.plan_diff.unplanned)}; refused requests: {len(report.plan_diff.denied)}."
    )
    approval = report.verdict_strip[-1]
    found[approval.question.rstrip("?")] = f"{approval.state}. {approval.answer}"
    found["Signed ledgers"] = (
        f"Every party keeps a signed ledger of what it sent and received. Evidence: "
        f"{report.integrity.verdict}."
    )
    found["Smallest cohort"] = (
        f"Totals are opened over at least {words.plural(subject.smallest_cohort, 'client')}."
    )
    if needed := persons(report):
        found["Persons at a site"] = f"{needed[0].upper()}{needed[1:]}."
    for row in report.accounting:
        if row.covered:
            found[f"Privacy budget of a {row.unit}"] = row.statement
    title = "Measures that were in force"
    return Question(324, title, "", tuple(found), tuple(found.values()))


def persons(report: Report) -> str:
    """Return of how many persons a site needs records to train; empty in an older report."""
    return next((fact.value for fact in report.scope.data if fact.name == PERSONS), "")


# The Markdown form.

_MARKUP = re.compile(r"[\\`*_{}\[\]#|~]")


def markdown(report: Report) -> bytes:
    """Return the draft (Markdown, UTF-8)."""
    subject = report.subject
    lines = [
        f"# DRAFT: impact assessment of {_plain(subject.algorithm)} on {_plain(subject.dataset)}",
        "",
        f"Made from the record of run {_plain(subject.run)}, plan {_plain(subject.plan_digest)}; "
        f"evidence: {_plain(report.integrity.verdict)}. It says what left whom under which "
        "protection, and what attacks found. It judges nothing.",
    ]
    for number, step in enumerate(steps(report), 1):
        lines += ["", f"## Step {number}: {step.title}"]
        for question in step.questions:
            lines += ["", f"### {question.title} (CNIL {question.number})", "", *_part(question)]
        lines += ["", *(f"- {OPEN}{line}" for line in step.left)]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _part(question: Question) -> Iterator[str]:
    if question.intro:
        yield from (_plain(question.intro), "")
    rows = question.lines
    if question.about:
        rows = tuple(f"{a}: {b}" for a, b in zip(question.lines, question.about, strict=True))
    yield from (f"- {_plain(row)}" for row in rows or ("None.",))


def _plain(text: str) -> str:
    """Return text that no reader of Markdown or HTML takes for markup, on one line."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return _MARKUP.sub(lambda match: f"\\{match[0]}", html.escape(shown, quote=False))


# The form of the CNIL's tool.

_ID = 1  # the tool gives a new one on import


def cnil(report: Report) -> bytes:
    """Return the draft (JSON, indented, ASCII only)."""
    questions = [question for step in steps(report) for question in step.questions]
    document = {
        "pia": _head(report),
        "answers": [_answer(question) for question in questions],
        "measures": [
            {"pia_id": _ID, "title": title, "content": _paragraph(content), "placeholder": ""}
            for question in questions
            for title, content in zip(question.lines, question.about, strict=False)
        ],
        "evaluations": [],
        "comments": [],
    }
    text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    return text.encode("ascii")


def _head(report: Report) -> dict[str, Any]:
    """Return a draft's head: nobody is author, evaluator or validator yet."""
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


def _answer(question: Question) -> dict[str, Any]:
    text, lines = None, list(question.lines)
    if question.intro:  # a question that the tool answers with a text, and not with a list
        items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        text, lines = _paragraph(question.intro) + f"<ul>{items}</ul>", []
    data = {"text": text, "gauge": None, "list": lines}
    return {"pia_id": _ID, "reference_to": question.number, "data": data}


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"
