"""Waivers of nothing or for too long, spoilt reports, lost FAILs: what is said; exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.secure_fgl.cli_tools import invoke
from tests.secure_fgl.test_audit_cli import _toy, today, told, waivers


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _toy(tmp_path_factory.mktemp("runs") / "he", "he")


@pytest.fixture
def good(once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(once, tmp_path / "good"))


def test_waivers_that_accept_nothing_are_said_on_stderr(good: Path, tmp_path: Path) -> None:
    file = waivers(tmp_path, {"rule": "ATTACK_A55"}, {"rule": "SIMULATION", "until": today(-1)})
    shown = invoke("audit", "report", good, "--waivers", file)
    assert "WAIVER UNUSED" in shown.stderr and "ATTACK_A55" in shown.stderr
    assert "WAIVER EXPIRED" in shown.stderr and today(-1) in shown.stderr
    fine = invoke("audit", "report", good, "--waivers", waivers(tmp_path, {"rule": "SIMULATION"}))
    assert "WAIVER " not in fine.stderr


def test_a_waiver_of_more_than_a_year_exits_2(good: Path, tmp_path: Path) -> None:
    for days, code in ((366, 0), (368, 2)):  # a day of slack: the test may run at midnight
        file = waivers(tmp_path, {"rule": "SIMULATION", "until": today(days)})
        assert invoke("audit", "report", good, "--waivers", file).exit_code == code


def test_advice_on_a_spoilt_report_is_about_the_report(good: Path) -> None:
    assert invoke("audit", "report", good).exit_code == 0
    (good / "report" / "findings.csv").write_text("fine\n")
    shown = invoke("audit", "report", good)
    assert shown.exit_code == 5 and "FAILED at report" in shown.stderr
    assert "make it anew" in shown.stderr and "ask each party" not in shown.stderr


def test_a_fail_that_is_no_longer_measured_exits_3(good: Path, tmp_path: Path) -> None:
    assert invoke("audit", "report", good).exit_code == 0
    old, document = tmp_path / "old.json", told(good)
    value = {"value": "0.7", "low": "0.6", "high": "0.8"}
    row = {"id": "A05", "payload": "P05", "what": "totals", "metric": "AUC", "verdict": "FAIL"}
    document["attacks"].append({**row, "protected": value})
    old.write_text(json.dumps(document))
    cases = (("audit", "diff", old, good), ("audit", "report", good, "--baseline", old))
    for words in cases:
        shown = invoke(*words)
        assert shown.exit_code == 3, words
        assert "NO LONGER MEASURED high: A05" in shown.stderr
        assert "Exit codes that apply: 3" in shown.stderr
        assert invoke(*words, "--fail-on", "never").exit_code == 0
