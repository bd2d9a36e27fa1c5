"""A draft of a data protection impact assessment (GDPR, Article 35), in Markdown.

The headings are the seven steps that the ICO names for such an assessment; beside each question of
the CNIL's tool that a step answers stands its number (see `cnil_pia.py`), for those who do not use
that tool. What the record of a run cannot know stands there as a line to be filled in by people.
"""

from __future__ import annotations

from collections.abc import Iterator

from audits.exporters._drafts import bullets, impacts, measures, plain, sources, table, threats
from audits.report import words
from audits.report.models import Report

NAME = "dpia-md"
FILE = "dpia-draft.md"

OPEN = "*To be filled in by people:* "
"""How every line begins that the record of a run cannot fill."""
_SIGN_OFF = (
    "who approves the measures, and when",
    "who accepts what risk is left; whether the supervisory authority is consulted first",
    "the advice of the data protection officer, and whether it is followed",
    "who reviews this assessment, and when",
)


def export(report: Report) -> bytes:
    """Return the draft (Markdown, UTF-8)."""
    subject = report.subject
    lines = [
        f"# DRAFT: impact assessment of {plain(subject.algorithm)} on {plain(subject.dataset)}",
        "",
        f"Made from the record of run {plain(subject.run)}, plan {plain(subject.plan_digest)}; "
        f"evidence: {plain(report.integrity.verdict)}. It says what left whom under which "
        "protection, and what attacks found. It judges nothing.",
    ]
    for number, (title, part) in enumerate(_steps(report), 1):
        lines += ["", f"## Step {number}: {title}", *part]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _steps(report: Report) -> Iterator[tuple[str, list[str]]]:
    yield "identify the need", _open("why an assessment is needed", "what it is to achieve")
    yield "describe the processing", _processing(report)
    asked = ("whose views are sought, when and how", "which processors and experts are asked")
    yield "consultation", _open(*asked)
    yield "necessity and proportionality", _necessity(report)
    yield "identify and assess risks", _risks(report)
    yield "identify measures", _measures(report)
    yield "sign off", _open(*_SIGN_OFF)


def _open(*lines: str) -> list[str]:
    return ["", *(f"- {OPEN}{line}" for line in lines)]


def _part(title: str, lines: list[str]) -> list[str]:
    return ["", f"### {title}", "", *lines]


def _processing(report: Report) -> list[str]:
    """Nature, scope and context: the flows of the run, and its parties."""
    data = (f"{fact.name}: {fact.value}" for fact in report.scope.data)
    sent = (
        (
            row.item,
            words.role(row.sender_role),
            words.role(row.recipient_role),
            "; ".join(f.meaning for m in row.messages for f in m.fields) or row.meaning,
            words.protection(row.protection),
            words.plural(row.count, "envelope") + ("" if row.planned else ", NOT PLANNED"),
        )
        for row in report.egress
    )
    who = (
        (party.name, words.role(party.role), party.organisation or "not stated")
        for party in report.parties
    )
    whose = f"What {report.side} alone sent" if report.side else "What left"
    heads = ("item", "from", "to", "what", "protection", "how much")
    return [
        *_part("What was computed (CNIL 122)", [plain(report.scope.purpose)]),
        *_part("Data that stay at the clients (CNIL 121)", bullets(data)),
        *_open(*report.scope.unknown),
        *_part(f"{plain(whose)} (CNIL 121, 122)", table(heads, sent)),
        *_part("Who took part (CNIL 123)", table(("party", "role", "organisation"), who)),
        *_open("machines, networks, premises and people behind these parties (CNIL 123)"),
    ]


def _necessity(report: Report) -> list[str]:
    planned = report.plan_diff
    facts = [
        f"Only what the plan lists can leave: {words.plural(planned.seen, 'envelope')} left, "
        f"{len(planned.unplanned)} of them not planned.",
        f"Totals are opened over {report.subject.smallest_cohort} clients at least.",
    ]
    asked = (
        "the lawful basis; why less data, or another way, would not do",
        "how people are told, and how their rights are kept",
        "safeguards for transfers to other countries",
    )
    return ["", *bullets(facts), *_open(*asked)]


def _risks(report: Report) -> list[str]:
    """What can be revealed, who could see it, and what was tried: no likelihood, no severity."""
    found = [f"{one.severity}: {one.message}{_accepted(one.waiver)}" for one in report.findings]
    return [
        *_part("What each kind of message can reveal (CNIL 321)", bullets(impacts(report))),
        *_part("Who could see what (CNIL 323)", bullets(sources(report))),
        *_part("What was tried, and what was not (CNIL 322)", bullets(threats(report))),
        *_part("Findings", bullets(found)),
        *_part("What the evidence cannot show", bullets(report.limits)),
        *_open("likelihood, severity and overall risk of each"),
    ]


def _accepted(waiver: object) -> str:
    return "" if waiver is None else " (accepted by somebody; see the report)"


def _measures(report: Report) -> list[str]:
    rows = [(title, content) for title, content in measures(report)]
    return [
        *_part("Measures that were in force (CNIL 324)", table(("measure", "what it does"), rows)),
        *_open("what risk each leaves; measures outside of the run; who sees to them"),
    ]
