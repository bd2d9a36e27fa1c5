"""How many replicas a row has stands in every format; who adds them by hand is found."""

from __future__ import annotations

import csv
import io
import json

import pytest

from audits.attacks import AttackReport
from audits.formats import render
from audits.report.attack_rows import RUN
from audits.report.build import build_report
from audits.report.models import Report
from tests.audits.attack_tools import BLANK, SINGLED, UNSURE, attacked, row
from tests.audits.bundle_tools import TOY

MANY = {**UNSURE, "profile": "default", "replicas": 7, "needed_n": 48}


def reported(**facts: object) -> Report:
    return build_report(attacked(TOY.view(), row(**facts)))


def test_clients_and_replicas_stand_in_every_format() -> None:
    report = reported(**MANY)
    assert report.tried.state == RUN
    told = "20 clients, 7 replicas each, about 48 needed"
    files = render(report, ["html", "md", "json", "csv"])
    assert told in files["report.html"].decode() and told in files["report.md"].decode()
    (found,) = json.loads(files["report.json"])["attacks"]
    assert (found["n_clients"], found["replicas"]) == (20, 7)
    (line,) = csv.DictReader(io.StringIO(files["attacks.csv"].decode()))
    assert (line["n_clients"], line["replicas"]) == ("20", "7")
    plain = render(reported(**{**MANY, "replicas": 0}), ["md"])["report.md"].decode()
    assert "replica" not in plain and "20 clients, about 48 needed" in plain  # the control


@pytest.mark.parametrize(
    "facts",
    [
        {**MANY, "profile": "quick"},
        {**MANY, "n_clients": 1},
        {**MANY, "replicas": 6},
        {**MANY, "n_clients": 60},
        {**SINGLED, "id": "A09", "profile": "default", "replicas": 7},
        {**BLANK, "verdict": "NOT_TESTED", "reason": "no", "profile": "default", "replicas": 7},
    ],
    ids=[
        "a profile without",
        "one client",
        "another number",
        "many clients",
        "facts",
        "nothing measured",
    ],
)
def test_replicas_where_there_can_be_none_are_refused(facts: dict[str, object]) -> None:
    assert reported(**facts).tried.state != RUN
    facts = {**facts, "replicas": 0}
    if facts.get("n_clients") != 1:
        assert reported(**facts).tried.state == RUN  # the control


def test_a_file_of_the_version_without_replicas_is_another_version() -> None:
    text = attacked(TOY.view(), row(**MANY)).attacks_text
    assert AttackReport.parse(text).rows[0].replicas == 7
    assert AttackReport.parse(text).schema_version == 4
