"""A run for a target (epsilon, delta): noise, budget, and what is said about both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.secure_fgl.cli_tools import config, invoke


def run(folder: Path, name: str, *settings: str) -> tuple[int, str]:
    words = [word for setting in settings for word in ("--set", setting)]
    store = ("--set", f"budget.store={folder / 'budgets'}")
    shown = invoke(
        "run", config(folder), "--out", folder / name, "--set", "policy=calibrated", *store, *words
    )
    return shown.exit_code, shown.stderr


def test_a_calibrated_run_keeps_its_target_and_lets_no_score_leave(tmp_path: Path) -> None:
    assert run(tmp_path, "first")[0] == 0
    result = json.loads((tmp_path / "first" / "result.json").read_text())
    assert result["form"] == "mean_of_changes_unscored" and result["backend"] == "masks"
    assert result["metrics"]["test_accuracy"] is None
    assert 0 <= result["references"]["released_model"] <= 1
    assert result["verdict"] == "self-consistent only"
    shown = invoke("audit", "account", tmp_path / "first", "--format", "json")
    assert shown.exit_code == 0
    plan = json.loads((tmp_path / "first" / "plan.json").read_text())
    assert "epsilon <= 8.0" in plan["budget"] and "not covered: refusals" in plan["budget"]


@pytest.mark.parametrize("workers", [1, 2])
def test_o20_a_second_run_beyond_the_budget_exits_7_before_anything_is_sent(
    workers: int, tmp_path: Path
) -> None:
    assert run(tmp_path, "first", f"transport.workers={workers}")[0] == 0
    notes = {path.stem for path in (tmp_path / "first" / "budgets").glob("*.checkpoint")}
    assert notes == {f"client-{i}" for i in range(1, 6)}
    code, told = run(tmp_path, "second", f"transport.workers={workers}")
    assert code == 7
    assert "privacy budget" in told and "budget.store" in told
    entries = [
        json.loads(line)
        for file in (tmp_path / "second" / "ledger").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert not [entry for entry in entries if entry["kind"] in ("release", "receipt")]


def test_o20_every_budget_is_witnessed_by_the_aggregator(tmp_path: Path) -> None:
    assert run(tmp_path, "first")[0] == 0
    notes = sorted((tmp_path / "first" / "budgets").glob("*.checkpoint"))
    assert [note.stem for note in notes] == [f"client-{i}" for i in range(1, 6)]
    assert all("aggregator" in note.read_text() for note in notes)
    stores = list((tmp_path / "budgets").glob("*.jsonl"))
    assert len(stores) == 5


def test_two_calibrated_runs_of_one_seed_share_no_noise(tmp_path: Path) -> None:
    """O15: noise comes from the operating system, never from the configuration."""
    digests = set()
    for name in ("first", "second"):
        assert run(tmp_path, name, f"budget.store={tmp_path / name}-store")[0] == 0
        digests.add(json.loads((tmp_path / name / "result.json").read_text())["model_sha256"])
    assert len(digests) == 2
