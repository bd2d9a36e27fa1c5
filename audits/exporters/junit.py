"""Steps of the verification, attacks and claims as JUnit XML, for the pages of a CI.

A case is one step, one row of an attack, or one claim of an epsilon. What fails is a failure. What
decides nothing, was not tested or not checked is skipped, with the reason, and never passed. A
failed attack that somebody accepted (a waiver in force) is skipped too, and says by whom.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree as Xml

from audits.report.models import Report

NAME = "junit"
FILE = "audit-junit.xml"
BROKEN_TOO = True
"""That the evidence is broken is what a CI has to see."""

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NEVER = "1970-01-01T00:00:00"


@dataclass(frozen=True)
class _Case:
    name: str
    state: Literal["passed", "failure", "skipped", "error"]
    why: str


def export(report: Report) -> bytes:
    """Return the XML (UTF-8); its shape is that of Ant's JUnit task."""
    suites = Xml.Element("testsuites")
    parts = {"verify": _steps(report), "attacks": _attacks(report), "claims": _claims(report)}
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
        waiver = waived.get((f"ATTACK_{row.id}", row.payload, row.what))
        if row.verdict == "FAIL" and waiver is not None:
            why = f"accepted by {waiver.owner} until {waiver.until}: {waiver.reason}"
            found.append(_Case(name, "skipped", f"FAIL, {why}. {row.reason}"))
        elif row.verdict in ("PASS", "FAIL", "ERROR"):
            state = {"PASS": "passed", "FAIL": "failure", "ERROR": "error"}[row.verdict]
            found.append(_Case(name, state, row.reason))  # type: ignore[arg-type]
        else:
            found.append(_Case(name, "skipped", f"{row.verdict}: {row.reason}"))
    return found


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
            "timestamp": report.subject.last_entry.removesuffix("Z") or _NEVER,
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


def _clean(text: str) -> str:
    """Return a text as one line, without what XML 1.0 has no word for."""
    return " ".join(_NO_XML.sub("?", text).split())
