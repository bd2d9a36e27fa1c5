"""Assessment results of OSCAL 1.2.1 (NIST), about the controls of the caller's own catalogue.

A control of the catalogue names the evidence that concerns it in a property ``secure-fgl``: an
attack (``A05``), a step of ``audit verify`` (``step tree``) or the rule of a finding. Each step,
row of an attack and finding of the report is an observation, which names the controls that ask for
it; what a control asks for and nobody looked at is one too, and says so. There are no findings in
the sense of OSCAL, since these say whether a control is satisfied, and that is for people to judge.

    https://pages.nist.gov/OSCAL-Reference/models/v1.2.1/assessment-results/
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn
from uuid import UUID, uuid5

from audits.exporters._drafts import one_line, plain
from audits.report.models import Report
from protocols.errors import PolicyError

NAME = "oscal"
FILE = "assessment-results.json"
NEEDS_CATALOG = True

VERSION = "1.2.1"
PROPERTY = "secure-fgl"
SPACE = "https://secure-fgl.dev/oscal"  # a name, not an address
_TOKEN = re.compile(r"[^\W\d][\w.\-]*")
_IDS = UUID("6f1f2f0e-6d7c-5b0e-9a53-0f5a7f0c1d11")
"""Names of our own are made under this one: equal reports, equal ids."""


def export(report: Report, catalog: Any) -> bytes:
    """Return the document (JSON, UTF-8).

    Args:
        report: what was found.
        catalog: the caller's catalogue, as it was parsed.

    Raises:
        PolicyError: it is no catalogue of OSCAL, or no control in it names evidence of ours.
    """
    asked = _asked(catalog)
    subject = report.subject
    about = f"Run {subject.run} of {plain(subject.algorithm)}"
    observations = list(_observations(report, asked))
    controls = sorted({control for ids in asked.values() for control in ids})
    plan = _id(report, "plan")
    result = {
        "uuid": _id(report, "result"),
        "title": plain(about),
        "description": "What the record of this run shows. Whether a control is satisfied is not "
        f"judged here. Evidence: {report.integrity.verdict}.",
        "start": subject.first_entry,
        "end": subject.last_entry,
        "reviewed-controls": {
            "control-selections": [
                {"include-controls": [{"control-id": control} for control in controls]}
            ]
        },
        "observations": observations,
    }
    document = {
        "uuid": _id(report, "document"),
        "metadata": {
            "title": "DRAFT: assessment results of a federated run",
            "last-modified": subject.last_entry,
            "version": str(report.schema_version),
            "oscal-version": VERSION,
        },
        "import-ap": {
            "href": f"#{plan}",
            "remarks": "The plan of the run. It is no assessment plan of OSCAL; name yours here.",
        },
        "results": [result],
        "back-matter": {
            "resources": [
                {
                    "uuid": plan,
                    "title": "plan.json",
                    "description": f"Plan of the run, digest {subject.plan_digest}.",
                }
            ]
        },
    }
    text = json.dumps({"assessment-results": document}, indent=2, sort_keys=True)
    return (text + "\n").encode("ascii")


def _observations(report: Report, asked: Mapping[str, list[str]]) -> Iterator[dict[str, Any]]:
    seen = set[str]()
    for number, (key, verdict, title, said) in enumerate(_evidence(report)):
        seen.add(key)
        yield _observation(report, f"{number} {key}", key, verdict, title, said, asked)
    for key in sorted(set(asked) - seen):
        absent = "The report has nothing on it: it was not tested, or there is no such finding."
        yield _observation(report, key, key, "NOT_TESTED", key, absent, asked)


def _evidence(report: Report) -> Iterator[tuple[str, str, str, str]]:
    """Yield what a control may name, a word for what came of it, a title and a sentence."""
    for step in report.integrity.steps:
        yield f"step {step.name}", step.status, f"Step {step.name} of audit verify", step.detail
    for row in report.attacks:
        about = f"{row.id} {row.name} on {row.payload} {row.what}"
        yield row.id, row.verdict, about, f"{row.question} {row.reason}"
    for one in report.findings:
        waiver = one.waiver
        accepted = (
            f" Accepted by {waiver.owner} until {waiver.until}: {waiver.reason}" if waiver else ""
        )
        yield one.rule, one.severity, f"Finding {one.rule}", f"{one.message}{accepted}"


def _observation(
    report: Report,
    place: str,
    key: str,
    verdict: str,
    title: str,
    said: str,
    asked: Mapping[str, list[str]],
) -> dict[str, Any]:
    told = [(PROPERTY, key), ("verdict", verdict)]
    told += [("control-id", control) for control in asked.get(key, ())]
    return {
        "uuid": _id(report, f"observation {place}"),
        "title": plain(title).strip() or "-",
        "description": plain(said).strip() or "-",
        "methods": ["TEST"],
        "collected": report.subject.last_entry,
        "props": [{"name": n, "ns": SPACE, "value": one_line(v) or "-"} for n, v in told],
    }


def _id(report: Report, what: str) -> str:
    subject = report.subject
    heads = ",".join(head.root for head in subject.heads)
    return str(uuid5(_IDS, f"{subject.run}/{subject.plan_digest}/{heads}/{what}"))


def _asked(catalog: Any) -> dict[str, list[str]]:
    """Return by the evidence that is named the ids of the controls that name it."""
    if not isinstance(catalog, dict) or not isinstance(catalog.get("catalog"), dict):
        _refuse("it holds no catalog")
    found: dict[str, list[str]] = {}
    waiting: list[Any] = [catalog["catalog"]]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            _refuse("a group or control in it is no object")
        for name in ("groups", "controls"):
            inner = part.get(name, [])
            if not isinstance(inner, list):
                _refuse(f"its {name} are no list")
            waiting += inner
        for key in _named(part):
            control = part.get("id")
            if not isinstance(control, str) or not _TOKEN.fullmatch(control):
                _refuse("a control that names evidence has no id")
            found.setdefault(key, []).append(control)
    if not found:
        _refuse(f"no control in it has a property {PROPERTY}")
    return {key: sorted(set(controls)) for key, controls in found.items()}


def _named(part: Mapping[str, Any]) -> Iterator[str]:
    props = part.get("props", [])
    for prop in props if isinstance(props, list) else []:
        if isinstance(prop, dict) and prop.get("name") == PROPERTY:
            value = prop.get("value")
            if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST:
                _refuse(f"a property {PROPERTY} has no value")
            yield value.strip()


_LONGEST = 200  # characters of a name of evidence


def _refuse(why: str) -> NoReturn:
    raise PolicyError(
        "The catalogue of controls cannot be used.",
        why=why,
        fix=f'give an OSCAL catalogue (JSON) whose controls hold {{"name": "{PROPERTY}", "value": '
        '"A05"}, or "step tree", or the rule of a finding, among their props',
    )
