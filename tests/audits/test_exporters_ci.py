"""SARIF and JUnit: they hold to the published schemas, and nothing untested looks passed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from jsonschema import Draft4Validator
from lxml import etree

from audits.exporters import junit, sarif
from audits.report.models import Finding, Report
from audits.report.sections import Change, Changes, Waived
from tests.audits.attack_tools import row as a_row
from tests.audits.report_tools import HOSTILE
from tests.audits.toy_run import Toy

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
WAIVED = Waived(owner="dpo", reason="known", until="2027-01-01", judged="2026-11-01")


@pytest.fixture(scope="module")
def plan(toy: Toy) -> str:
    return toy.view().plan_text.decode()


def attacked(report: Report) -> Report:
    """Return the report with a row of every verdict, one waived, and findings of every kind."""
    row = a_row()
    verdicts = ("PASS", "FAIL", "INCONCLUSIVE", "INVALID", "NOT_APPLICABLE", "NOT_TESTED", "ERROR")
    rows = [
        row.model_copy(update={"verdict": v, "what": f"row {n}", "payload": "P05"})
        for n, v in enumerate(verdicts)
    ]
    rows.append(rows[1].model_copy(update={"what": "accepted"}))
    found = [
        finding("ATTACK_" + row.id, "high", item="row 1", payload="P05"),
        finding("ATTACK_" + row.id, "high", item="accepted", payload="P05", waiver=WAIVED),
        finding("NOT_TESTED", "low", payload="P19"),
        finding("UNSAFE_CLEAR", "critical", item="step.up.SUM"),
    ]
    return report.model_copy(update={"attacks": tuple(rows), "findings": tuple(found)})


def finding(rule: str, severity: Any, **more: Any) -> Finding:
    facts = {"id": "F01", "item": "", "recipient_role": "aggregator", "fingerprint": "ab" * 32}
    said = {"message": f"{rule} is there.", "remediation": "Mend it."}
    return Finding.model_validate({**facts, **said, "rule": rule, "severity": severity, **more})


def log(report: Report, plan: str) -> Any:
    document = json.loads(sarif.export(report, plan))
    schema = json.loads((VECTORS / "sarif-2.1.0.schema.json").read_text("utf-8"))
    Draft4Validator(schema).validate(document)
    (run,) = document["runs"]
    return run


def suites(report: Report) -> dict[str, Xml.Element]:
    content = junit.export(report)
    etree.XMLSchema(etree.parse(VECTORS / "junit.xsd")).assertValid(etree.fromstring(content))
    return {suite.attrib["name"]: suite for suite in Xml.fromstring(content)}


def states(suite: Xml.Element) -> dict[str, str]:
    return {
        case.attrib["name"]: case[0].tag if len(case) else "passed"
        for case in suite.findall("testcase")
    }


def test_a_log_points_at_the_plan_and_keeps_what_was_accepted(report: Report, plan: str) -> None:
    run = log(attacked(report), plan)
    by_item = {r["properties"].get("item"): r for r in run["results"] if r["kind"] == "fail"}
    place = by_item["step.up.SUM"]["locations"][0]["physicalLocation"]
    line = plan.splitlines()[place["region"]["startLine"] - 1]
    assert line.strip().rstrip(",") == '"id": "step.up.SUM"'
    assert by_item["accepted"]["suppressions"][0]["justification"].startswith("known (accepted by")
    assert "suppressions" not in by_item["row 1"]
    for result in run["results"]:
        rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        assert result["kind"] == "pass" or result["partialFingerprints"]


def test_only_rows_that_passed_pass(report: Report, plan: str) -> None:
    made = attacked(report)
    kinds = [(r["ruleId"], r["kind"]) for r in log(made, plan)["results"]]
    assert [rule for rule, kind in kinds if kind == "pass"] == [made.attacks[0].id]
    assert ("NOT_TESTED", "open") in kinds
    found = {name.split()[-1]: s for name, s in states(suites(made)["attacks"]).items() if s}
    assert found["0"] == "passed" and found["1"] == "failure" and found["6"] == "error"
    assert [found[str(n)] for n in (2, 3, 4, 5)] == ["skipped"] * 4
    assert found["accepted"] == "skipped"


def test_the_counts_of_a_suite_are_those_of_its_cases(report: Report) -> None:
    for suite in suites(attacked(report)).values():
        cases = [case[0].tag for case in suite.findall("testcase") if len(case)]
        for name in ("failures", "errors"):
            assert int(suite.attrib[name]) == cases.count(name[:-1])
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))


def test_steps_that_fail_are_failures_and_those_not_checked_are_skipped(report: Report) -> None:
    first, *rest = report.integrity.steps
    broken = first.model_copy(update={"status": "FAIL", "detail": "not\x00 what\nit was\ud800"})
    steps = (broken, *rest)
    changed = report.integrity.model_copy(update={"steps": steps})
    suite = suites(report.model_copy(update={"integrity": changed}))["verify"]
    found = states(suite)
    assert found[first.name] == "failure" and "passed" in found.values()
    case = next(c for c in suite.findall("testcase") if c.attrib["name"] == first.name)
    assert case[0].attrib["message"] == "not? what it was?"


def test_names_of_strangers_are_text(report: Report, plan: str) -> None:
    text = report.model_dump_json().replace('"toy"', json.dumps(HOSTILE))
    planted = attacked(Report.model_validate_json(text.replace("step.vote", ']]>&\\"\\u0007')))
    assert suites(planted)
    assert log(planted, plan)
    assert log(planted, '"id": "step.up.SUM"\n{"id": [')  # a plan that is none


def test_a_finding_without_a_row_is_no_less_than_in_the_report(report: Report) -> None:
    """A CI that shows these pages alone saw a run in clear pass, and no untested payload."""
    found = states(suites(attacked(report))["findings"])
    told = {name.split(" ", 1)[1]: state for name, state in found.items()}
    assert told == {"NOT_TESTED P19": "skipped", "UNSAFE_CLEAR step.up.SUM": "failure"}
    waived = finding("UNWITNESSED", "high", waiver=WAIVED)
    suite = suites(report.model_copy(update={"findings": (waived,)}))["findings"]
    (case,) = suite.findall("testcase")
    assert case[0].tag == "skipped" and "accepted by dpo" in case[0].attrib["message"]


def test_what_was_not_run_again_since_the_baseline_is_said(report: Report, plan: str) -> None:
    facts: dict[str, Any] = {"what": "A05 P05 totals auc", "new": "", "fingerprint": "cd" * 32}
    moves = [
        Change(move="no longer measured", kind="attack", severity="high", old="FAIL 0.9", **facts),
        Change(move="no longer measured", kind="attack", severity="low", old="PASS 0.5", **facts),
    ]
    changes = Changes(baseline_run="r", baseline_digest="ab" * 32, same=0, changes=tuple(moves))
    made = report.model_copy(update={"changes": changes})
    found = states(suites(made)["findings"])
    assert [s for name, s in found.items() if name.startswith("NO LONGER")] == ["failure"]
    results = [r for r in log(made, plan)["results"] if r["ruleId"] == "NO_LONGER_MEASURED"]
    assert [r["kind"] for r in results] == ["open"] and "FAIL 0.9" in results[0]["message"]["text"]


@pytest.mark.parametrize("time", ["", "x\x00<y>", "\ud800", "2026-99-01T00:00:00Z", "9" * 40])
def test_a_time_that_is_none_breaks_no_page(report: Report, time: str) -> None:
    subject = report.subject.model_copy(update={"last_entry": time})
    for suite in suites(report.model_copy(update={"subject": subject})).values():
        assert suite.attrib["timestamp"] == "1970-01-01T00:00:00"


def test_what_fails_over_sites_fails_a_ci_though_the_run_s_own_rows_pass(report: Report) -> None:
    passed = a_row().model_copy(update={"what": "row 1"})
    rule, about = f"ATTACK_{passed.id}", {"payload": "P05"}
    found = (finding(rule, "high", item="at sites: row 1", **about),)
    made = report.model_copy(update={"attacks": (passed,), "findings": found})
    assert list(states(suites(made)["findings"]).values()) == ["failure"]
    own = (finding(rule, "high", item="row 1", **about),)  # the control: a case of its own already
    made = made.model_copy(update={"findings": own})
    assert not states(suites(made)["findings"])
