"""Drafts: what the record shows is filled in, what people decide is left empty."""

from __future__ import annotations

import csv
import html
import html.parser
import io
import json
import re
from pathlib import Path

import pytest

from audits.exporters import EXPORTERS, art30_csv, assessment
from audits.report.models import Report
from protocols.disclosures.registry import guards
from protocols.policy.guards import COMMON
from tests.audits.attack_tools import row as a_row
from tests.audits.report_tools import FORMULA, HOSTILE, LINK, TABLE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compliance.md"
JUDGED = re.compile(r"\b(compliant|complies|anonymous|safe)\b", re.IGNORECASE)


@pytest.fixture(scope="module")
def planted(report: Report) -> Report:
    """A report whose files were written by somebody hostile."""
    text = report.model_dump_json().replace('"toy"', json.dumps(HOSTILE))
    text = text.replace("change of the model", "=<img src=x>").replace('"step.vote"', '"@vote"')
    return Report.model_validate_json(text)


def pia(report: Report) -> dict:
    return json.loads(assessment.cnil(report))


def rows(report: Report) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(art30_csv.export(report).decode())))


def test_equal_reports_make_equal_drafts(report):
    assert list(EXPORTERS) == ["art30-csv", "cnil-pia", "dpia-md", "junit", "sarif"]
    for export in EXPORTERS.values():
        assert export(report, "{}") == export(report, "{}")


def test_a_pia_draft_has_the_shape_that_the_tool_imports(report):
    document = pia(report)
    assert set(document) == {"pia", "answers", "measures", "evaluations", "comments"}
    numbers = [answer["reference_to"] for answer in document["answers"]]
    assert numbers == [121, 122, 123, 321, 322, 323, 324]
    for answer in document["answers"]:
        assert set(answer["data"]) == {"text", "gauge", "list"}
        prose = answer["reference_to"] < 200
        assert bool(answer["data"]["text"]) is prose
        assert bool(answer["data"]["list"]) is not prose


def test_a_pia_draft_leaves_judgement_to_people(report):
    document = pia(report)
    assert all(answer["data"]["gauge"] is None for answer in document["answers"])
    assert document["evaluations"] == document["comments"] == []
    head = document["pia"]
    assert head["status"] == 0 and head["name"].startswith("DRAFT")
    assert not any(head[f"{who}_name"] for who in ("author", "evaluator", "validator"))
    assert not {"dpo_opinion", "dpo_status", "concerned_people_opinion"} & set(head)


def test_measures_are_those_that_were_in_force(report):
    document = pia(report)
    titles = [measure["title"] for measure in document["measures"]]
    assert document["answers"][-1]["data"]["list"] == titles
    assert {"Masked sums", "Encrypted sums", "Sealed envelopes"} <= set(titles)
    assert "Noise in the sum" not in titles
    clear = tuple(row.model_copy(update={"protection": ("sign",)}) for row in report.egress)
    bare = pia(report.model_copy(update={"egress": clear}))
    assert "Masked sums" not in [measure["title"] for measure in bare["measures"]]


def test_every_guard_but_the_unsafe_one_is_a_measure():
    names = {g.model_fields["guard"].default for g in (*COMMON, *guards())}
    assert set(assessment.MEASURES) == names - {"unsafe_clear"}


class _Tags(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not attrs


def test_names_of_strangers_are_no_markup_in_a_pia(planted):
    document = pia(planted)
    texts = [answer["data"]["text"] or "" for answer in document["answers"]]
    texts += [measure["content"] for measure in document["measures"]]
    assert "script" in "".join(texts)
    for text in texts:
        assert _Tags(text).tags <= {"p", "ul", "li"}


def test_a_record_has_the_points_of_article_30_and_one_row_per_route(report):
    found = rows(report)
    assert len(found) == len(report.egress)
    assert tuple(found[0]) == art30_csv.COLUMNS
    for incoming in "abcdefg":
        assert any(column.startswith(f"({incoming})") for column in art30_csv.COLUMNS)
    for row, sent in zip(found, report.egress, strict=True):
        assert (row["envelopes"], row["bytes"]) == (str(sent.count), str(sent.bytes))
        assert row["evidence"].startswith("as planned")


def test_a_record_names_the_organisations_of_a_charter(report):
    parties = tuple(
        p.model_copy(update={"organisation": f"House {p.name}"} if p.role == "client" else {})
        for p in report.parties
    )
    named = rows(report.model_copy(update={"parties": parties}))
    senders = [row["(d) sender"] for row in named if row["(d) sender"].startswith("client")]
    assert senders and all("in the run: House client-1, House" in sender for sender in senders)
    assert "House" not in str(rows(report))


def test_what_the_tool_cannot_know_is_empty_and_named(report):
    for row in rows(report):
        empty = [name for name in art30_csv.PEOPLE if row[name] == ""]
        assert empty == list(art30_csv.PEOPLE)
        assert all(name in row["to be filled in by people"] for name in empty)


def test_what_was_not_planned_is_said(report):
    drifted = report.egress[0].model_copy(update={"planned": False})
    found = rows(report.model_copy(update={"egress": (drifted,)}))
    assert found[0]["evidence"].startswith("NOT PLANNED")


def test_no_cell_is_a_formula(planted, report):
    facts = {"sender_role": FORMULA, "item": "+1", "learns": {"-1": "x"}}
    row = report.egress[0].model_copy(update=facts)
    for one in (planted, planted.model_copy(update={"egress": (row,)})):
        cells = [cell for line in rows(one) for cell in line.values()]
        assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r", "\n")]
    assert any(cell.startswith("'") for cell in cells)


def dpia(report: Report) -> str:
    return assessment.markdown(report).decode()


def section(text: str, title: str) -> str:
    """Return what stands under a heading, up to the next of its kind."""
    level = title.partition(" ")[0]
    assert text.count(f"\n{title}") == 1
    return text.partition(f"\n{title}")[2].partition(f"\n{level} ")[0]


def test_an_assessment_has_the_seven_steps_and_judges_nothing(report: Report) -> None:
    text = dpia(report)
    assert re.findall(r"^## Step (\d)", text, re.M) == list("1234567")
    for number in range(1, 8):
        assert assessment.OPEN in section(text, f"## Step {number}")
    assert not JUDGED.search(text)
    for question in (121, 122, 123, 321, 322, 323, 324):
        assert f"(CNIL {question})" in text


def test_drafts_say_how_many_persons_a_site_needs(report: Report) -> None:
    told = "site with training records of fewer than 10 trains on nothing"
    assert told in {fact.name: fact.value for fact in report.scope.data}["Persons"]
    assert told in section(dpia(report), "## Step 6")
    assert told in art30_csv.export(report).decode()
    data = tuple(fact for fact in report.scope.data if fact.name != "Persons")  # of older reports
    older = report.model_copy(update={"scope": report.scope.model_copy(update={"data": data})})
    assert told not in section(dpia(older), "## Step 6")
    assert "persons at a site: -" in art30_csv.export(older).decode()


def test_an_assessment_names_all_that_left_and_all_that_was_found(report: Report) -> None:
    row = a_row().model_copy(update={"verdict": "NOT_TESTED", "question": "Who is it?"})
    there = report.model_copy(update={"attacks": (row,)})
    text = dpia(there)
    for sent in report.egress:
        assert sum(line.startswith(f"- {escaped(sent.item)}: ") for line in text.splitlines()) == 1
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


def test_both_forms_of_an_assessment_say_the_same(report: Report) -> None:
    text, document = dpia(report), pia(report)
    for answer in document["answers"]:
        data = answer["data"]
        part = text.partition(f"(CNIL {answer['reference_to']})\n")[2].partition("\n## ")[0]
        part = part.partition("\n### ")[0]
        for line in data["list"] or re.findall(r"<(?:p|li)>(.*?)</(?:p|li)>", data["text"]):
            assert escaped(line if data["list"] else html.unescape(line)) in html.unescape(part)
    for measure in document["measures"]:
        (content,) = re.findall("<p>(.*)</p>", measure["content"])
        assert escaped(html.unescape(f"{measure['title']}: {content}")) in html.unescape(text)


def test_names_of_strangers_are_no_markup_in_the_text(report: Report) -> None:
    for planted in (HOSTILE, FORMULA, LINK, TABLE, "a\n## Step 8: sign here"):
        text = report.model_dump_json().replace('"toy"', json.dumps(planted))
        text = text.replace('"client-1"', json.dumps(planted)).replace(
            '"step.up.SUM"', json.dumps(planted)
        )
        draft = dpia(Report.model_validate_json(text))
        assert "<script" not in draft and not re.search(r"(?<!\\)\]\(", draft)
        assert "\n## Step 8" not in draft and "\n| x |" not in draft


def test_the_page_on_forms_names_every_export_and_judges_nothing() -> None:
    page = PAGE.read_text("utf-8")
    for name in EXPORTERS:
        assert f"`{name}`" in page
    assert not JUDGED.search(page)
