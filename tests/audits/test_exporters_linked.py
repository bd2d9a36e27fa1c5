"""OSCAL and JSON-LD: the caller's controls, what left, and nothing that people must judge."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from audits.bundle.making import statements
from audits.bundle.statements import PAYLOAD_TYPE, PREDICATES, STATEMENT, open_statement
from audits.exporters import dpv, export, oscal
from audits.report.build import build_report
from audits.report.models import Report
from audits.report.sections import Waived
from protocols.errors import PolicyError
from tests.audits.attack_tools import row as a_row
from tests.audits.bundle_tools import AUDITOR
from tests.audits.forging import without_models
from tests.audits.report_tools import FORMULA, HOSTILE, LINK
from tests.audits.test_exporters_ci import finding
from tests.audits.toy_run import Toy, save
from tests.secure_fgl.cli_tools import invoke

UGLY = f"{HOSTILE} {LINK} {FORMULA} \x1b[31m\x00\u202e\nnext"
JUDGED = re.compile(r"\b(compliant|complies|anonymous|safe|satisfied\"|not-satisfied)\b", re.I)
DATE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def control(name: str, *evidence: str, **more: Any) -> dict[str, Any]:
    props = [{"name": "secure-fgl", "value": value} for value in evidence]
    return {"id": name, "title": name, "props": [*props, {"name": "label", "value": "x"}], **more}


CATALOG = {
    "catalog": {
        "controls": [control("top-1", "A05")],
        "groups": [
            {
                "id": "g",
                "groups": [{"controls": [control("deep-1", "step tree", "A12")]}],
                "controls": [
                    control("in-1", "A05", controls=[control("in-1.1", "NOT_TESTED")]),
                    control("other-1"),
                ],
            }
        ],
    }
}


def results(report: Report, catalog: Any = CATALOG) -> dict[str, Any]:
    data = export(report, "oscal", catalog=catalog)
    assert data == export(report, "oscal", catalog=catalog)
    return dict(json.loads(data)["assessment-results"])


def props(observation: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for prop in observation["props"]:
        found.setdefault(prop["name"], []).append(prop["value"])
    return found


@pytest.fixture(scope="module")
def ugly(report: Report) -> Report:
    """A report with a row, a finding and names that somebody hostile wrote."""
    waiver = Waived(owner=UGLY, reason=UGLY, until="2027-01-01", judged="2026-11-01")
    found = (finding("NOT_TESTED", "low", message=UGLY), finding("X", "low", waiver=waiver))
    row = a_row().model_copy(update={"what": UGLY, "reason": UGLY})
    egress = tuple(
        one.model_copy(update={"item": UGLY, "learns": {UGLY: UGLY}}) for one in report.egress
    )
    parties = tuple(one.model_copy(update={"organisation": UGLY}) for one in report.parties)
    scope = report.scope.model_copy(update={"purpose": UGLY})
    more = {"attacks": (row,), "findings": found, "egress": egress, "parties": parties}
    return report.model_copy(update={**more, "scope": scope})


def test_controls_are_the_caller_s_and_none_is_judged(ugly: Report) -> None:
    found = results(ugly)
    (result,) = found["results"]
    (selection,) = result["reviewed-controls"]["control-selections"]
    ids = [one["control-id"] for one in selection["include-controls"]]
    assert ids == ["deep-1", "in-1", "in-1.1", "top-1"]
    assert "findings" not in result and "risks" not in result and "attestations" not in result
    by = {tuple(props(one)["secure-fgl"]): props(one) for one in result["observations"]}
    assert by["A05",]["control-id"] == ["in-1", "top-1"]
    assert by["A05",]["verdict"] == ["PASS"]
    assert by["step tree",]["control-id"] == ["deep-1"]
    assert by["A12",]["verdict"] == ["NOT_TESTED"]  # asked for, and nobody looked
    steps = [one for one in result["observations"] if props(one)["secure-fgl"][0][:4] == "step"]
    assert len(steps) == len(ugly.integrity.steps)


def test_results_have_the_members_and_forms_that_oscal_asks_for(ugly: Report) -> None:
    """What the schema of OSCAL 1.2.1 requires; by hand the document was held against all of it."""
    found = results(ugly)
    assert set(found) == {"uuid", "metadata", "import-ap", "results", "back-matter"}
    assert {"title", "last-modified", "version", "oscal-version"} <= set(found["metadata"])
    (result,) = found["results"]
    assert {"uuid", "title", "description", "start", "reviewed-controls"} <= set(result)
    assert re.fullmatch(DATE, result["start"]) and re.fullmatch(DATE, result["end"])
    target = found["import-ap"]["href"].removeprefix("#")
    assert [one["uuid"] for one in found["back-matter"]["resources"]] == [target]
    seen = [one["uuid"] for one in result["observations"]]
    assert len(set(seen)) == len(seen)
    for one in result["observations"]:
        assert re.fullmatch(UUID, one["uuid"]) and re.fullmatch(DATE, one["collected"])
        assert one["methods"] == ["TEST"] and "\n" not in one["title"] and one["description"]
        for prop in one["props"]:
            assert re.fullmatch(r"\S(.*\S)?", prop["value"])


@pytest.mark.parametrize(
    "catalog",
    [
        None,
        [],
        {"catalog": []},
        {"catalog": {"controls": {}}},
        {"catalog": {"groups": [7]}},
        {"catalog": {"controls": [control("x")]}},
        {"catalog": {"controls": [control("two words", "A05")]}},
        {"catalog": {"controls": [{"props": [{"name": "secure-fgl", "value": "A05"}]}]}},
        {"catalog": {"controls": [control("x", " ")]}},
    ],
)
def test_what_is_no_catalogue_of_such_controls_is_refused(report: Report, catalog: Any) -> None:
    with pytest.raises((PolicyError, ValueError)):
        export(report, "oscal", catalog=catalog)


def test_an_inventory_has_a_process_a_route_and_leaves_judgement_out(report: Report) -> None:
    document = json.loads(export(report, "dpv"))
    whole, *rows = document["@graph"]
    assert len(rows) == len(report.egress) == len(whole["dpv:hasProcess"])
    assert whole["sfgl:leftToPeople"] == list(dpv.PEOPLE)
    names = {name for node in document["@graph"] for name in node}
    assert not names & set(dpv.PEOPLE)
    for node, sent in zip(rows, report.egress, strict=True):
        assert (node["sfgl:envelopes"], node["sfgl:bytes"]) == (sent.count, sent.bytes)
        assert len(node["dpv:hasTechnicalMeasure"]) == len(sent.protection)
    clear = report.egress[0].model_copy(update={"protection": ("unsafe_clear()",), "unsafe": True})
    bare = json.loads(export(report.model_copy(update={"egress": (clear,)}), "dpv"))["@graph"][1]
    assert bare["dpv:hasTechnicalMeasure"] == [] and bare["sfgl:inClear"]


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("form", ["oscal", "dpv"])
def test_names_of_strangers_are_text_and_no_word_judges(ugly: Report, form: str) -> None:
    data = export(ugly, form, catalog=CATALOG)
    assert data == export(ugly, form, catalog=CATALOG) and data.isascii()
    found = texts(json.loads(data))
    assert "alert" in " ".join(found)
    for text in found:
        assert text.isprintable(), text
        # OSCAL's texts are Markdown; JSON-LD's are plain literals.
        assert form == "dpv" or not re.search(r"<script|(?<!\\)\]\(", text)
    assert not JUDGED.search(data.decode())


def test_statements_without_a_bundle_are_about_the_run_s_files(toy: Toy, tmp_path: Path) -> None:
    view = without_models(toy)
    report = build_report(view)
    plain, signed = statements(view, report, None), statements(view, report, AUDITOR)
    assert plain == statements(view, report, None) and signed == statements(view, report, AUDITOR)
    for kind, name in PREDICATES.items():
        if name == "svr":
            continue
        body = json.loads(plain[f"{name}.intoto.json"])
        assert (body["_type"], body["predicateType"]) == (STATEMENT, kind)
        one = open_statement(signed[f"{name}.dsse.json"])
        one.envelope.verify(PAYLOAD_TYPE, {AUDITOR.public.key_id: AUDITOR.public})
        assert dict(one.predicate) == body["predicate"]
        about = {subject["name"] for subject in body["subject"]}
        assert {"plan.json", "ledger/client-1.jsonl", "heads/client-1.checkpoint"} <= about
    run, out = save(view, tmp_path / "run"), tmp_path / "out"
    words = ("audit", "report", run, "--fail-on", "never", "--format")
    assert invoke(*words, "intoto", "--out", out).exit_code == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == plain
    assert not (run / "report").exists()
    assert invoke(*words, "html,intoto", "--out", tmp_path / "both").exit_code == 0
    assert (tmp_path / "both" / "report.html").is_file()
    assert invoke(*words, "intoto").exit_code == 2
    assert invoke(*words, "html", "--key", tmp_path / "no.pem").exit_code == 2


def test_the_command_needs_a_catalogue_for_oscal_alone(toy: Toy, tmp_path: Path) -> None:
    run, file = save(without_models(toy), tmp_path / "run"), tmp_path / "catalog.json"
    file.write_text(json.dumps(CATALOG))
    words = ("audit", "export", run, "--to")
    shown = invoke(*words, "oscal", "--catalog", file)
    assert shown.exit_code == 0 and f'"{oscal.VERSION}"' in shown.stdout
    assert invoke(*words, "dpv").exit_code == 0
    assert invoke(*words, "oscal").exit_code == 2
    assert invoke(*words, "dpv", "--catalog", file).exit_code == 2
    file.write_text("{}")
    refused = invoke(*words, "oscal", "--catalog", file)
    assert refused.exit_code == 2 and "holds no catalog" in refused.stderr
