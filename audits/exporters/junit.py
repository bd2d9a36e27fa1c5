"""Steps of the verification, attacks, claims and findings as JUnit XML, for the pages of a CI.

A case is one step, one row of an attack, one claim of an epsilon, or one finding that is about none
of these. What fails is a failure, and so is a finding that is critical or high, as for ``audit
report``. What decides nothing, was not tested or not checked, and a lighter finding, is skipped,
with the reason, and never passed. A failed attack or a finding that somebody accepted (a waiver in
force) is skipped too, and says by whom.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from xml.etree import ElementTree as Xml

from audits.findings.changes import lost
from audits.report.models import Report
from audits.report.sections import Waived

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NEVER = "1970-01-01T00:00:00"
_GRAVE = ("critical", "high")
_LEAKS = ("FAIL", "ABOVE_PRIOR")
"""What fails a report where nothing else was asked for (``--fail-on high``)."""


@dataclass(frozen=True)
class _Case:
    name: str
    state: Literal["passed", "failure", "skipped", "error"]
    why: str


def export(report: Report) -> bytes:
    """Return the XML (UTF-8); its shape is that of Ant's JUnit task."""
    suites = Xml.Element("testsuites")
    parts = {
        "verify": _steps(report),
        "attacks": _attacks(report),
        "claims": _claims(report),
        "findings": [*_findings(report), *_no_longer_measured(report)],
    }
    for number, (name, cases) in enumerate(parts.items()):
        _suite(suites, report, number, name, cases)
    Xml.indent(suites)
    found: bytes = Xml.tostring(suites, encoding="utf-8", xml_declaration=True)
    return found + b"\n"


def _steps(report: Report) -> list[_Case]:
    states = {"OK": "passed", "FAIL": "failure"}
    return [
        _Case(step.name, states.get(step.status, "skipped"), step.detail)  # type: ignore[arg-type]
        for step in report.integrity.steps
    ]


def _attacks(report: Report) -> list[_Case]:
    waived = {
        (f.rule, f.payload, f.item): f.waiver for f in report.findings if f.waiver is not None
    }
    found = []
    for row in report.attacks:
        name = " ".join(filter(None, (row.id, row.name, row.payload, row.what)))
        family = "ATTACK" if row.verdict == "FAIL" else row.verdict
        waiver = waived.get((f"{family}_{row.id}", row.payload, row.what))
        if row.verdict in _LEAKS and waiver is not None:
            said = f"{row.verdict}, {_accepted(waiver)}. {row.reason}"
            found.append(_Case(name, "skipped", said))
        elif row.evidence == "there":
            found.append(_Case(name, "failure", row.reason))
        elif row.verdict in ("PASS", "FAIL", "ERROR"):
            state = {"PASS": "passed", "FAIL": "failure", "ERROR": "error"}[row.verdict]
            found.append(_Case(name, state, row.reason))  # type: ignore[arg-type]
        else:
            found.append(_Case(name, "skipped", f"{row.verdict}: {row.reason}"))
    return found


def _accepted(waiver: Waived) -> str:
    return f"accepted by {waiver.owner} until {waiver.until}: {waiver.reason}"


def _findings(report: Report) -> list[_Case]:
    """Return what was found, less what is a case of its own as a row or a claim."""
    shown = {
        (f"{verdict}_{row.id}", row.payload, row.what)
        for row in report.attacks
        for verdict in (row.verdict, "ATTACK")
    }
    found = []
    for one in report.findings:
        # What fails over sites is a finding of the same rule, and no row of the run's own.
        if (one.rule, one.payload, one.item) in shown or one.rule == "CLAIM_FALSIFIED":
            continue
        name = " ".join(filter(None, (one.id, one.rule, one.payload, one.item)))
        said = f"{one.severity}: {one.message}"
        if one.waiver is not None:
            found.append(_Case(name, "skipped", f"{_accepted(one.waiver)}. {said}"))
        else:
            found.append(_Case(name, "failure" if one.severity in _GRAVE else "skipped", said))
    return found


def _no_longer_measured(report: Report) -> list[_Case]:
    """Return attacks that succeeded in the baseline and were not run again."""
    gone = [one for one in (report.changes.changes if report.changes else ()) if lost(one)]
    return [
        _Case(
            f"NO LONGER MEASURED {one.kind} {one.what}",
            "failure" if one.severity in _GRAVE else "skipped",
            f"{one.severity}: succeeded in the baseline ({one.old}), and was not run again",
        )
        for one in gone
    ]


def _claims(report: Report) -> list[_Case]:
    states = {"falsified": "failure", "not_falsified": "passed"}
    return [
        _Case(
            f"epsilon {claim.epsilon_claim} of a {claim.unit}: {claim.text}",
            states.get(claim.status, "skipped"),  # type: ignore[arg-type]
            f"{claim.status}; lower bound {claim.epsilon_lb or 'none'}",
        )
        for claim in report.claims
    ]


def _suite(suites: Xml.Element, report: Report, number: int, name: str, cases: list[_Case]) -> None:
    count = {
        state: sum(c.state == state for c in cases) for state in ("failure", "error", "skipped")
    }
    suite = Xml.SubElement(
        suites,
        "testsuite",
        {
            "package": "secure-fgl",
            "id": str(number),
            "name": name,
            "timestamp": _time(report.subject.last_entry),
            "hostname": "localhost",
            "tests": str(len(cases)),
            "failures": str(count["failure"]),
            "errors": str(count["error"]),
            "skipped": str(count["skipped"]),
            "time": "0",
        },
    )
    facts = Xml.SubElement(suite, "properties")
    for key, value in (
        ("run", report.subject.run),
        ("plan_digest", report.subject.plan_digest),
        ("evidence", report.integrity.verdict),
    ):
        Xml.SubElement(facts, "property", {"name": key, "value": _clean(value)})
    for case in cases:
        here = Xml.SubElement(
            suite, "testcase", {"name": _clean(case.name), "classname": name, "time": "0"}
        )
        if case.state == "skipped":
            Xml.SubElement(here, "skipped", {"message": _clean(case.why)})
        elif case.state != "passed":
            said = {"message": _clean(case.why), "type": case.state}
            Xml.SubElement(here, case.state, said)
    Xml.SubElement(suite, "system-out").text = ""
    Xml.SubElement(suite, "system-err").text = ""


def _time(text: str) -> str:
    """Return the time of a ledger's entry as a date; a stranger may have written anything there."""
    try:
        return datetime.strptime(text.removesuffix("Z"), "%Y-%m-%dT%H:%M:%S").isoformat()
    except ValueError:
        return _NEVER


def _clean(text: str) -> str:
    """Return a text as one line, without what XML 1.0 has no word for."""
    return " ".join(_NO_XML.sub("?", text).split())
