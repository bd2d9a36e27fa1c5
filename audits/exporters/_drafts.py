"""What several drafts say in the same words: measures, impacts, threats and who saw what."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from audits.explain import find
from audits.report import words
from audits.report.models import Report
from audits.report.scope import PERSONS

_MARKUP = re.compile(r"[\\`*_{}\[\]#|~]")
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


def _sent(report: Report) -> list[str]:
    return sorted({payload for row in report.egress for payload in row.payloads})


def impacts(report: Report) -> list[str]:
    """Return what each kind of payload can reveal, in the words of ``audit explain``."""
    return [
        f"{page.word} {page.title}: {dict(page.sections)['What it still reveals']}"
        for word in _sent(report)
        for page in find(word)
        if page.kind == "payload"
    ]


def threats(report: Report) -> list[str]:
    """Return the questions that attacks asked, with their verdicts, and what nobody asked."""
    tried = [
        f"{row.question} ({row.id} on {row.payload or 'the run'}: {row.verdict})"
        for row in report.attacks
        if row.verdict != "NOT_APPLICABLE"
    ]
    return tried + [f"{row.payload} was not tested: {row.why}" for row in report.not_tested]


def sources(report: Report) -> list[str]:
    """Return who could see what."""
    return [f"{words.role(view.viewer)}: {'; '.join(view.sees)}" for view in report.views]


def measures(report: Report) -> list[tuple[str, str]]:
    """Return the measures that were in force, each once."""
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
    if told := persons(report):
        found["Persons at a site"] = f"{told[0].upper()}{told[1:]}."
    for row in report.accounting:
        if row.covered:
            found[f"Privacy budget of a {row.unit}"] = row.statement
    return list(found.items())


def persons(report: Report) -> str:
    """Return of how many persons a site needs records to train; empty in an older report."""
    return next((fact.value for fact in report.scope.data if fact.name == PERSONS), "")


def one_line(text: str) -> str:
    """Return text without control characters and breaks."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def plain(text: str) -> str:
    """Return text that no reader of Markdown or HTML takes for markup, on one line."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return _MARKUP.sub(lambda found: f"\\{found[0]}", html.escape(shown, quote=False))


def bullets(lines: Iterable[str]) -> list[str]:
    """Return a list in Markdown, or the word None."""
    return [f"- {plain(line)}" for line in lines] or ["None."]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *([plain(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
