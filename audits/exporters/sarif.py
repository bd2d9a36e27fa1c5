"""Findings and attacks as SARIF 2.1.0 (OASIS), for viewers of code scanning.

A rule is a rule of a finding or an attack. A result is a finding, or an attack's row that passed. A
place is the line of ``plan.json`` at which the plan's item says its name: the item that it is
about, or the first that discloses such a payload; the first line, if it is about the whole run. A
finding that somebody accepted stays, as a suppressed result. What was not tested, or decides
nothing, and an attack that succeeded in the baseline and was not run again, is ``open`` and never
``pass``.
"""

from __future__ import annotations

import json
from typing import Any

from audits.attacks._shared.models import AttackRow
from audits.explain import find
from audits.findings.changes import lost
from audits.report.models import Finding, Report, Severity
from audits.report.sections import Change

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
PLAN = "plan.json"

_LEVELS: dict[Severity, str] = {
    "critical": "error",
    "high": "error",
    "medium": "warning",
    "low": "note",
    "info": "note",
}
_GONE = "NO_LONGER_MEASURED"
_OPEN = ("NOT_TESTED", "INCONCLUSIVE", "INVALID", "ERROR")


def export(report: Report, plan: str) -> bytes:
    """Return the log (JSON, UTF-8).

    Args:
        report: what was found.
        plan: the text of the run's ``plan.json``.
    """
    passed = [row for row in report.attacks if row.verdict == "PASS"]
    gone = [one for one in (report.changes.changes if report.changes else ()) if lost(one)]
    found = {f.rule for f in report.findings} | {row.id for row in passed}
    names = sorted(found | {_GONE for _ in gone})
    place = {name: number for number, name in enumerate(names)}
    lines = _Lines(report, plan)
    results = [_finding(finding, place, lines) for finding in report.findings]
    results += [_gone(change, place) for change in gone]
    results += [_passed(row, place, lines) for row in passed]
    run = {
        "tool": {
            "driver": {
                "name": report.tool.name,
                "rules": [_rule(name) for name in names],
            }
        },
        "automationDetails": {
            "id": f"secure-fgl/{report.subject.run}",
            "description": {"text": report.scope.purpose},
        },
        "artifacts": [{"location": {"uri": PLAN}, "mimeType": "application/json"}],
        "results": results,
        "properties": {
            "planDigest": report.subject.plan_digest,
            "evidence": report.integrity.verdict,
        },
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return (json.dumps(log, indent=2, sort_keys=True) + "\n").encode("utf-8", "replace")


class _Lines:
    """At which lines of the plan its items say their names."""

    def __init__(self, report: Report, plan: str) -> None:
        self._lines: dict[str, int] = {}
        for number, line in enumerate(plan.splitlines(), 1):
            key, _, value = line.strip().rstrip(",").partition(": ")
            if key == '"id"':
                self._lines.setdefault(value, number)
        self._items: dict[str, str] = {}
        for row in report.egress:
            for payload in row.payloads[:1]:
                self._items.setdefault(payload, row.item)

    def of(self, item: str, payload: str) -> int:
        """Return the line of an item, or of the first item that discloses a payload, from 1."""
        named = (item, self._items.get(payload, ""))
        return next((self._lines[n] for n in map(json.dumps, named) if n in self._lines), 1)


def _rule(name: str) -> dict[str, Any]:
    pages = find(name)
    found: dict[str, Any] = {"id": name}
    if pages:
        (_, first), *_ = pages[0].sections
        found["shortDescription"] = {"text": pages[0].title}
        found["fullDescription"] = {"text": first}
        found["help"] = {"text": "\n\n".join(text for _, text in pages[0].sections)}
    return found


def _finding(finding: Finding, place: dict[str, int], lines: _Lines) -> dict[str, Any]:
    still_open = finding.rule.startswith(_OPEN)
    found: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": place[finding.rule],
        "kind": "open" if still_open else "fail",
        "level": "none" if still_open else _LEVELS[finding.severity],
        "message": {"text": f"{finding.message} {finding.remediation}".strip()},
        "locations": [_location(lines.of(finding.item, finding.payload))],
        "partialFingerprints": {"secureFglFinding/v1": finding.fingerprint},
        "properties": {
            "severity": finding.severity,
            "payload": finding.payload,
            "item": finding.item,
            "recipientRole": finding.recipient_role,
        },
    }
    if finding.waiver is not None:
        waiver = finding.waiver
        found["suppressions"] = [
            {
                "kind": "external",
                "status": "accepted",
                "justification": f"{waiver.reason} (accepted by {waiver.owner} until "
                f"{waiver.until}; judged on {waiver.judged})",
            }
        ]
    return found


def _gone(change: Change, place: dict[str, int]) -> dict[str, Any]:
    said = f"{change.kind} {change.what} succeeded in the baseline ({change.old})"
    return {
        "ruleId": _GONE,
        "ruleIndex": place[_GONE],
        "kind": "open",
        "level": "none",
        "message": {"text": f"{said}, and was not run again."},
        "locations": [_location(1)],
        "partialFingerprints": {"secureFglChange/v1": change.fingerprint},
        "properties": {"severity": change.severity},
    }


def _passed(row: AttackRow, place: dict[str, int], lines: _Lines) -> dict[str, Any]:
    return {
        "ruleId": row.id,
        "ruleIndex": place[row.id],
        "kind": "pass",
        "level": "none",
        "message": {"text": f"{row.id} {row.name}, {row.payload} {row.what}: {row.reason}"},
        "locations": [_location(lines.of("", row.payload))],
        "properties": {"payload": row.payload, "what": row.what},
    }


def _location(line: int) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": PLAN, "index": 0},
            "region": {"startLine": line},
        }
    }
