"""Sections 5 and 6: what attacks found, and what becomes of a file that cannot be believed."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import jsonschema
import pytest

from audits.attacks import attacks
from audits.attacks._shared.payloads import NOT_ATTACKED
from audits.attacks.grad_span import GradSpan
from audits.evidence.verify import verify
from audits.formats import FORMATS, render, schema
from audits.report import attack_rows
from audits.report.build import build_report
from audits.report.models import Report
from tests.audits.attack_tools import (
    BIASED,
    BLANK,
    LEAK,
    SINGLED,
    UNSURE,
    attacked,
    claim,
    row,
)
from tests.audits.report_tools import FORMULA, HOSTILE, Page

SENT = {"P03", "P04", "P05", "P17", "P18", "P19"}


def rules(report: Report) -> dict[str, str]:
    return {f.rule: f.severity for f in report.findings}


def test_without_attacks_every_payload_that_left_is_listed_as_not_tested(report, page):
    assert report.tried.state == "No attack was run on what left."
    assert {one.payload for one in report.not_tested} <= SENT
    assert {"P05", "P19"} <= {one.payload for one in report.not_tested}
    missing = {f.payload: f.severity for f in report.findings if f.rule == "NOT_TESTED"}
    assert set(missing) == {one.payload for one in report.not_tested}
    assert set(missing.values()) == {"low"}  # until it is decided, or waived by name
    assert not {"P03", "P04", "P18", "P20"} & set(missing)  # no attack applies to these
    assert report.verdict_strip[2].state == "NOT TESTED"
    assert report.limits[0].startswith("No attack was run")
    assert all(one.payload in page for one in report.not_tested)


def test_only_what_did_leave_can_be_untested(toy, report):
    left = {payload for row in report.egress for payload in row.payloads} - NOT_ATTACKED
    assert {one.payload for one in report.not_tested} == left
    attacked_too = build_report(attacked(toy.view(), row())).not_tested
    assert {one.payload for one in attacked_too} == left - {"P05"}
    assert "P20" not in left  # refusals were planned as possible, and none left


def test_rows_of_attacks_stand_in_every_format_and_the_schema_holds(toy):
    view = attacked(toy.view(), row(), claims=(claim(),))
    report = build_report(view)
    files = render(report, FORMATS)
    jsonschema.Draft202012Validator(schema()).validate(json.loads(files["report.json"]))
    for name in ("report.html", "report.md"):
        text = files[name].decode()
        for said in ("grad", "0.511", "0.529", "0.998", "3.69", "PASS", "no evidence above"):
            assert said in text
    (found,) = csv.DictReader(io.StringIO(files["attacks.csv"].decode()))
    assert (found["id"], found["verdict"], found["protected_high"]) == ("A05", "PASS", "0.529")
    assert found["gap_low"] == "-0.012"  # a number, not a formula
    assert render(build_report(view), FORMATS) == files


def test_a_pass_says_within_which_margin_and_what_stays_untested(toy):
    report = build_report(attacked(toy.view(), row()))
    line = report.verdict_strip[2]
    assert "found no evidence of it; that does not prove that none can (A05)" in line.answer
    assert line.state == "ATTENTION" and "No attack looked at " in line.answer
    assert "P05" not in {one.payload for one in report.not_tested}
    assert "ATTACK_A05" not in rules(report)
    assert "attacks.json is in no ledger" in report.limits[0]


@pytest.fixture
def registered(monkeypatch):
    """Put one more attack into the registry, with the rules of A05."""

    def put(**facts):
        known = (*attacks(), GradSpan(**facts))
        monkeypatch.setattr(attack_rows, "attacks", lambda: known)

    return put


MEASURED = "0.93 (0.9 to 0.95), 0.502 without the message, 0.998 on the raw one"
FACT = "1 (1 to 1), 0 without the message, 1 on the raw one"
CODE = {**SINGLED, "metric": "share of values that break the rule", "n_clients": 0}


@pytest.mark.parametrize(
    ("attack", "name", "severity", "payload", "facts", "said"),
    [
        ("A19", "grad-span", "high", "P05", LEAK, MEASURED),
        ("A04", "label-count", "medium", "P05", LEAK, MEASURED),
        ("A05", "grad-span", "high", "P05", LEAK, MEASURED),
        ("A09", "secagg-structure", "high", "P05", SINGLED, FACT),
        ("A10", "dp-function", "critical", "P06", CODE, FACT),
    ],
)
def test_an_attack_that_succeeds_is_a_finding_of_its_gravity(
    toy, registered, attack, name, severity, payload, facts, said
):
    registered(id="A19")
    bad = row(**{**facts, "id": attack, "payload": payload, "what": "other"})
    report = build_report(attacked(toy.view(), row(), bad))
    (finding,) = [f for f in report.findings if f.rule == f"ATTACK_{attack}"]
    assert (finding.severity, finding.payload) == (severity, payload)
    assert said in finding.message
    line = report.verdict_strip[2]
    assert line.state == "FAIL" and f"({attack})" in line.answer
    assert f"{attack} {name} succeeds" in finding.message
    if payload != "P05":
        return
    assert "no evidence" not in line.answer  # the worst row of a payload speaks for it


def test_a_falsified_claim_is_critical_and_one_that_stands_is_no_finding(toy):
    good = build_report(attacked(toy.view(), row(), claims=(claim(),)))
    assert "CLAIM_FALSIFIED" not in rules(good)
    bad = claim(status="falsified", epsilon_claim="1")
    report = build_report(attacked(toy.view(), row(), claims=(bad,)))
    assert rules(report)["CLAIM_FALSIFIED"] == "critical"
    assert report.verdict_strip[2].state == "FAIL"


@pytest.mark.parametrize("verdict", ["INCONCLUSIVE", "INVALID", "ERROR", "NOT_TESTED"])
def test_what_decides_nothing_never_reads_as_a_pass(toy, verdict):
    figures = {"INCONCLUSIVE": UNSURE, "INVALID": BIASED, "ERROR": BLANK | {"payload": "P05"}}
    figures["NOT_TESTED"] = figures["ERROR"]
    given = row(**{**figures[verdict], "verdict": verdict, "reason": "why not"})
    report = build_report(attacked(toy.view(), given))
    assert rules(report)[f"{verdict}_A05"] == "low"  # no better than not tested
    line = report.verdict_strip[2]
    untested = verdict == "NOT_TESTED"
    assert line.state == ("NOT TESTED" if untested else "ATTENTION")
    said = "It was not tested whether" if untested else "It is undecided whether"
    assert said in line.answer and "(A05" in line.answer
    assert verdict.replace("_", " ") in render(report, ["html"])["report.html"].decode()
    assert ("P05" in {one.payload for one in report.not_tested}) is (
        verdict in ("ERROR", "NOT_TESTED")
    )


def test_an_attack_that_does_not_apply_leaves_its_payload_untested(toy):
    blank = row(**BLANK, verdict="NOT_APPLICABLE", reason="no noise, no claim")
    report = build_report(attacked(toy.view(), blank))
    assert report.verdict_strip[2].state == "NOT TESTED"
    assert "P05" in {one.payload for one in report.not_tested}
    assert "no noise, no claim" in render(report, ["html"])["report.html"].decode()


def _edited(view, **changes):
    document = json.loads(view.attacks_text)
    document.update(changes)
    return json.dumps(document, indent=2, sort_keys=True).encode() + b"\n"


def _row_edited(view, **changes):
    rows = json.loads(view.attacks_text)["rows"]
    rows[0].update(changes)
    return _edited(view, rows=rows)


HOSTILE_FILES = {
    "another run's": lambda v: _edited(v, run="00" * 16),
    "another plan's": lambda v: _edited(v, plan_digest="00" * 32),
    "other ledgers'": lambda v: _edited(v, heads_digest="00" * 32),
    "an extra key": lambda v: _edited(v, more=1),
    "a seed of one's own": lambda v: _edited(v, seed=0),
    "an extra key in a row": lambda v: _row_edited(v, more=1),
    "NaN": lambda v: v.attacks_text.replace(b'"n_pos": 512', b'"n_pos": NaN'),
    "a number as text that is none": lambda v: _row_edited(v, chance="nan"),
    "a large number": lambda v: _row_edited(v, n_pos=10**400),
    "a larger number": lambda v: v.attacks_text.replace(
        b'"n_pos": 512', b'"n_pos": 1' + b"0" * 9999
    ),
    "a count without end": lambda v: _row_edited(v, n_neg=10**30),
    "no JSON": lambda v: b"\xff\xfe{",
    "deep": lambda v: b"[" * 100_000,
    "a list": lambda v: b"[]",
    "another spelling": lambda v: v.attacks_text.replace(b"  ", b" "),
    "huge": lambda v: b" " * (5 << 20),
    "a repeated key": lambda v: v.attacks_text.replace(
        b'"n_pos": 512', b'"n_pos": 512,\n"n_pos": 512'
    ),
    "half a character": lambda v: _row_edited(v, what="\ud800"),
    "a line break": lambda v: _row_edited(v, reason="one\ntwo"),
    "a turn of writing": lambda v: _row_edited(v, reason="\u202egnorw"),
    "a better verdict": lambda v: _row_edited(v, verdict="PASS", protected=None),
    "a PASS of a leak": lambda v: _row_edited(
        v, protected={"value": "0.9", "low": "0.8", "high": "0.95", "n": 20}
    ),
    "a PASS of a weak attack": lambda v: _row_edited(
        v, raw_gap={"value": "0.2", "low": "0.1", "high": "0.3", "n": 20}
    ),
    "a PASS with a wide gap": lambda v: _row_edited(
        v, gap={"value": "0.01", "low": "0", "high": "0.2", "n": 20}
    ),
}


@pytest.mark.parametrize("kind", HOSTILE_FILES)
def test_a_file_that_cannot_be_believed_is_refused_whole_and_said(toy, report, kind):
    honest = attacked(toy.view(), row())
    assert build_report(honest).tried.used
    view = replace(honest, attacks_text=HOSTILE_FILES[kind](honest))
    made = build_report(view)
    assert rules(made)["ATTACKS_REFUSED"] == "high"
    assert not made.tried.used and made.attacks == () and made.claims == ()
    assert made.tried.state.startswith("attacks.json was not used: ")
    assert made.verdict_strip[2].state == "NOT TESTED"
    assert made.not_tested == report.not_tested
    page = render(made, FORMATS)["report.html"].decode()
    assert "attacks.json was not used" in page


def test_names_and_words_of_attacks_are_text_everywhere(toy, registered):
    named = {"id": "A19", "name": HOSTILE[:40], "question": HOSTILE}
    registered(**named)
    planted = row(**{**LEAK, "reason": HOSTILE}, **named, what=FORMULA)
    view = attacked(toy.view(), planted, claims=(claim(text=HOSTILE),))
    files = {n: data.decode() for n, data in render(build_report(view), FORMATS).items()}
    assert HOSTILE not in files["report.html"] and HOSTILE not in files["report.md"]
    assert "script" not in Page(files["report.html"]).tags
    assert f"'{FORMULA}" in files["attacks.csv"]
    cells = [c for line in csv.reader(io.StringIO(files["attacks.csv"])) for c in line]
    assert not any(cell.startswith(("=", "+", "@")) for cell in cells)


def test_a_report_with_attacks_is_verified_byte_for_byte(toy):
    view = attacked(toy.view(reports=False), row(**LEAK))
    whole = replace(view, reports=render(build_report(view), FORMATS))
    steps = {step.name: step.status for step in verify(whole).steps}
    assert steps["report"] == "OK"
    without = replace(whole, attacks_text=b"")
    assert {s.name: s.status for s in verify(without).steps}["report"] == "FAIL"
