"""Drafts for other forms: what the record shows is filled in, what people decide is left empty."""

from __future__ import annotations

import csv
import html.parser
import io
import json

import pytest

from audits.exporters import (
    EXPORTERS,
    _drafts,
    art30_csv,
    export,
    file_name,
    of_account,
    of_catalog,
)
from audits.report.models import Report
from protocols.disclosures.registry import guards
from protocols.policy.guards import COMMON
from tests.audits.report_tools import FORMULA, HOSTILE


@pytest.fixture(scope="module")
def planted(report: Report) -> Report:
    """A report whose files were written by somebody hostile."""
    text = report.model_dump_json().replace('"toy"', json.dumps(HOSTILE))
    text = text.replace("change of the model", "=<img src=x>").replace('"step.vote"', '"@vote"')
    return Report.model_validate_json(text)


def pia(report: Report) -> dict:
    return json.loads(export(report, "cnil-pia"))


def rows(report: Report) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(export(report, "art30-csv").decode())))


def test_exporters_are_found_by_folder_and_deterministic(report):
    ours = ("art30-csv", "cnil-pia", "dpia-md", "dpv", "junit", "nist-800-226", "oscal", "sarif")
    assert ours == EXPORTERS
    for name in EXPORTERS:
        assert file_name(name).endswith((".csv", ".json", ".jsonld", ".md", ".sarif", ".xml"))
        if of_account(name) or of_catalog(name):
            with pytest.raises(ValueError, match="needs"):
                export(report, name)
        else:
            assert export(report, name) == export(report, name)
        with pytest.raises(ValueError, match="no exporter"):
            export(report, name + "x")


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
    assert set(_drafts.MEASURES) == names - {"unsafe_clear"}


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
