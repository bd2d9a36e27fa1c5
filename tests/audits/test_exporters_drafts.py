"""Markdown drafts: every step and layer is there, and what people must say is left to them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from audits.accounting.models import Account, Uncovered
from audits.accounting.rows import unbounded
from audits.exporters import EXPORTERS, dpia_md, export, nist_800_226
from audits.report.models import Report
from tests.audits.attack_tools import row as a_row
from tests.audits.noised_run import NoisedRun
from tests.audits.report_tools import FORMULA, HOSTILE, LINK, TABLE
from tests.audits.test_account_training import PrivateRun

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compliance.md"
JUDGED = re.compile(r"\b(compliant|complies|anonymous|safe)\b", re.IGNORECASE)


@pytest.fixture(scope="module")
def noised() -> Account:
    return NoisedRun().account()


@pytest.fixture(scope="module")
def private() -> Account:
    return PrivateRun().account()


def dpia(report: Report) -> str:
    return export(report, "dpia-md").decode()


def nist(report: Report, account: Account) -> str:
    return export(report, "nist-800-226", account=account).decode()


def section(text: str, title: str) -> str:
    """Return what stands under a heading, up to the next of its kind."""
    level = title.partition(" ")[0]
    assert text.count(f"\n{title}") == 1
    return text.partition(f"\n{title}")[2].partition(f"\n{level} ")[0]


def test_an_assessment_has_the_seven_steps_and_judges_nothing(report: Report) -> None:
    text = dpia(report)
    assert re.findall(r"^## Step (\d)", text, re.M) == list("1234567")
    for number in range(1, 8):
        assert dpia_md.OPEN in section(text, f"## Step {number}")
    assert not JUDGED.search(text)
    for question in (121, 122, 123, 321, 322, 323, 324):
        assert f"CNIL {question}" in text or f", {question})" in text


def test_drafts_say_how_many_persons_a_site_needs(report: Report) -> None:
    told = "site with training records of fewer than 10 trains on nothing"
    assert told in {fact.name: fact.value for fact in report.scope.data}["Persons"]
    assert told in section(dpia(report), "## Step 6")
    assert told in export(report, "art30-csv").decode()
    data = tuple(fact for fact in report.scope.data if fact.name != "Persons")  # of older reports
    older = report.model_copy(update={"scope": report.scope.model_copy(update={"data": data})})
    assert told not in section(dpia(older), "## Step 6")
    assert "persons at a site: -" in export(older, "art30-csv").decode()


def test_an_assessment_names_all_that_left_and_all_that_was_found(report: Report) -> None:
    row = a_row().model_copy(update={"verdict": "NOT_TESTED", "question": "Who is it?"})
    there = report.model_copy(update={"attacks": (row,)})
    text = dpia(there)
    for sent in report.egress:
        assert sum(line.startswith(f"| {escaped(sent.item)} |") for line in text.splitlines()) == 1
    for found in report.findings:
        assert escaped(found.message) in section(text, "## Step 5")
    for missing in report.not_tested:
        assert f"{missing.payload} was not tested" in text
    assert "Who is it?" in text and "NOT\\_TESTED" in text
    unplanned = [one.model_copy(update={"planned": False}) for one in report.egress]
    assert "NOT PLANNED" not in text
    assert "NOT PLANNED" in dpia(report.model_copy(update={"egress": tuple(unplanned)}))


def escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", text)


def test_names_of_strangers_are_no_markup(report: Report, noised: Account) -> None:
    for planted in (HOSTILE, FORMULA, LINK, TABLE, "a\n## Step 8: sign here"):
        text = report.model_dump_json().replace('"toy"', json.dumps(planted))
        text = text.replace('"client-1"', json.dumps(planted)).replace(
            '"step.up.SUM"', json.dumps(planted)
        )
        forged = Report.model_validate_json(text)
        account = noised.model_copy(
            update={"statement": planted, "reasons": (planted,), "notes": (planted,)}
        )
        for draft in (dpia(forged), nist(forged, account)):
            assert "<script" not in draft and not re.search(r"(?<!\\)\]\(", draft)
            assert "\n## Step 8" not in draft and "\n| x |" not in draft
            tables = [line for line in draft.splitlines() if line.startswith("|")]
            rows = {len(re.findall(r"(?<!\\)\|", line)) for line in tables}
            assert rows <= {3, 4, 5, 7, 8, 9}


def test_each_layer_of_the_pyramid_is_there(report: Report, noised: Account) -> None:
    text = nist(report, noised)
    layers = [line for line in text.splitlines() if line.startswith("## ")]
    assert [line.split(":")[0] for line in layers] == [
        "## Top", "## Top", "## Middle", "## Middle", "## Middle", "## Middle",
        "## Base", "## Base", "## What is not covered", "## To be stated by people",
    ]  # fmt: skip
    assert not JUDGED.search(text)
    claims = section(text, "## Top: epsilon and the unit of privacy")
    assert noised.target is not None
    for label in (noised.target.value, noised.target.unit, noised.target.adjacency):
        assert label in claims
    mechanisms = section(text, "## Middle: mechanisms")
    for one in noised.noise:
        assert one.sigma in mechanisms and escaped(one.mechanism) in mechanisms
    trust = section(text, "## Base: trust model")
    assert noised.target.model in trust
    assert all(escaped(line) in trust for line in noised.target.assumptions)
    bare = noised.model_copy(update={"target": None, "noise": (), "counted": (), "records": None})
    assert "model: not stated" in section(nist(report, bare), "## Base: trust model")
    covered = section(text, "## What is not covered")
    assert all(escaped(one.item) in covered for one in noised.not_covered)


def test_no_epsilon_stands_without_unit_adjacency_scope_and_delta(
    report: Report, noised: Account, private: Account
) -> None:
    for account in (noised, private):
        rows = section(nist(report, account), "## Top: epsilon").splitlines()
        cells = [row.split(" | ") for row in rows if row.startswith("|")][2:]
        assert cells
        for row in cells:
            assert len(row) == 8 and all(row)
            unit, adjacency, scope, delta = row[1], row[2], row[3], row[6]
            assert unit in ("client", "graph", "node", "edge") and adjacency != "not stated"
            assert scope != "not stated" and delta != "not stated"
    assert private.records is not None
    assert private.records.recorded.value in nist(report, private)


def test_what_is_not_covered_is_infinite_in_the_draft_too(report: Report, noised: Account) -> None:
    """The covered messages' number stands in a row of its own, which says of what it is."""
    bare = Uncovered(item="other.up.SUM", why="it carries no noise")
    changes = {"epsilon": unbounded(), "not_covered": (bare,)}
    first = section(nist(report, noised.model_copy(update=changes)), "## Top: epsilon")
    rows = [line.split(" | ") for line in first.splitlines() if line.startswith("| ")][2:]
    assert [row[5] for row in rows] == ["infinity", noised.epsilon.value]
    assert rows[1][0].startswith("| covered messages alone")
    whole = section(nist(report, noised), "## Top: epsilon").splitlines()
    assert sum(line.startswith("| ") for line in whole) == 3  # control: one row, and its number


def test_a_claim_without_an_attack_is_not_stated_as_tested(report: Report, noised: Account) -> None:
    text = nist(report.model_copy(update={"claims": ()}), noised)
    assert nist_800_226.NOT_STATED in section(text, "## Top: the empirical bound")


def test_the_page_on_forms_names_every_export_and_judges_nothing() -> None:
    page = PAGE.read_text("utf-8")
    for name in EXPORTERS:
        assert f"`{name}`" in page
    assert not JUDGED.search(page)
