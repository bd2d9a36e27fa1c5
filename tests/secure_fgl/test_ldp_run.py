"""Runs under the preset `ldp` and its like: planned, refused, spent, attacked."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from audits.formats import render
from audits.report.build import build_report
from protocols.errors import NotAdmitted
from protocols.plan.plan import Plan
from protocols.policy.policy import PRESETS, PrivacyPolicy
from protocols.privacy.own_target import error_of_one
from secure_fgl.catalogue import algorithm_names
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.laws.runs import config as law
from tests.secure_fgl.cli_tools import config, invoke


def accepting(folder: Path, *disclosures: str) -> Path:
    """Write the preset with accepted noise, for some of its disclosures."""
    document = PRESETS["ldp"].document()
    document["name"] = "accepting"
    for name in ("SUM", "NOISED"):
        if name not in disclosures:
            del document["rules"][name]
            continue
        for guard in document["rules"][name]:
            if guard["guard"] == "own_noise":
                guard["accept_noise"] = True
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def run(folder: Path, policy: Any, name: str = "run") -> Any:
    sets = [f"policy={policy}", f"budget.store={folder / 'budgets'}"]
    words = [word for one in sets for word in ("--set", one)]
    return invoke("run", config(folder), "--out", folder / name, *words)


def test_the_preset_refuses_what_says_nothing_and_names_what_would(tmp_path: Path) -> None:
    shown = run(tmp_path, "ldp")
    assert shown.exit_code == 2
    assert "accept_noise: true" in shown.stderr and "at least" in shown.stderr
    assert not (tmp_path / "run" / "ledger").exists()


@pytest.mark.parametrize("disclosure", ["SUM", "NOISED"])
def test_a_run_keeps_its_target_by_each_clients_own_noise(tmp_path: Path, disclosure: str) -> None:
    policy = accepting(tmp_path, disclosure)
    assert run(tmp_path, policy).exit_code == 0
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert "model: local" in plan["budget"] and "replace-one" in plan["budget"]
    shown = invoke("audit", "account", tmp_path / "run", "--format", "json")
    assert shown.exit_code == 0
    found = json.loads(shown.stdout)
    assert found["verdict"] == "NOT FALSIFIED" and not found["not_covered"]
    labels = found["epsilon"]
    assert (labels["unit"], labels["adjacency"]) == ("client", "replace-one")
    assert (labels["model"], labels["scope"]) == ("local", "run")
    assert 7.9 < float(labels["value"]) <= 8.0
    assert {view["epsilon"]["value"] for view in found["views"]} == {labels["value"]}
    assert invoke("audit", "verify", tmp_path / "run").exit_code == 0
    check_calibration(tmp_path / "run", disclosure)
    attacked = invoke("audit", "attack", tmp_path / "run", "--attacks", "A10", "--fail-on", "never")
    assert attacked.exit_code == 0 and "not falsified" in attacked.stdout + attacked.stderr
    again = run(tmp_path, policy, "again")
    assert again.exit_code == 7 and "privacy budget" in again.stderr


def check_calibration(folder: Path, disclosure: str) -> None:
    """The report shows what the noise leaves, as planned, beside what happened."""
    report = build_report(Run(folder).view())
    (spent,) = report.spending
    (row,) = spent.calibrated
    plan = Plan.model_validate_json((folder / "plan.json").read_text())
    one = error_of_one(plan.item(row.item), PrivacyPolicy.load(folder.parent / "policy.yaml"))
    clients = len(plan.clients)
    assert row.item.endswith(f".up.{disclosure}") and (row.planned, row.answered) == (clients,) * 2
    assert float(row.ratio) == pytest.approx(one / math.sqrt(clients), rel=0.01)
    assert row.answered_ratio == row.ratio and row.needed == math.ceil(one**2) > clients
    assert row.asks == plan.rounds and 7.9 < row.spent.as_float() <= 8.0
    for text in render(report, ("html", "md", "json")).values():
        shown = text.decode().replace("\\", "")  # Markdown escapes underscores
        assert str(row.needed) in shown and row.item in shown


def test_scores_that_clients_tell_are_charged_counted_and_attacked(tmp_path: Path) -> None:
    """Two numbers of a message: what the plan, the ledgers, the account and A10 say of them."""
    policy = accepting(tmp_path, "SUM", "NOISED")
    sets = [f"policy={policy}", f"budget.store={tmp_path / 'budgets'}", "evaluation.told=true"]
    words = [word for one in sets for word in ("--set", one)]
    folder = tmp_path / "run"
    document = yaml.safe_load(policy.read_text())
    policy.write_text(yaml.safe_dump({**document, "budget": {"epsilon": 20.0, "delta": 1e-5}}))
    assert invoke("run", config(tmp_path), "--out", folder, *words).exit_code == 0
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["form"] == "mean_of_changes_told_scores"
    assert "of val (a number) and test (a number)" in plan["budget"]
    result = json.loads((folder / "result.json").read_text())
    assert 0.0 <= result["metrics"]["val_told"] <= 1.0 and result["metrics"]["best_round"] >= 0
    shown = invoke("audit", "account", folder, "--format", "json")
    found = json.loads(shown.stdout)
    assert shown.exit_code == 0 and found["verdict"] == "NOT FALSIFIED"
    assert not found["not_covered"] and 7.9 < float(found["epsilon"]["value"]) <= 8.0
    assert invoke("audit", "verify", folder).exit_code == 0
    attacked = invoke("audit", "attack", folder, "--attacks", "A10", "--fail-on", "never")
    assert attacked.exit_code == 0 and "not falsified" in attacked.stdout + attacked.stderr
    assert "one bounded number in a message" in attacked.stdout + attacked.stderr


def test_calibrate_shows_every_epsilon_without_data(tmp_path: Path) -> None:
    shown = invoke(
        "plan", config(tmp_path), "--set", "policy=ldp", "--calibrate", "--format", "json"
    )
    assert shown.exit_code == 0
    rows = json.loads(shown.stdout)
    assert [row["epsilon"] for row in rows] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    ratios = [row["ratio"] for row in rows]
    assert ratios == sorted(ratios, reverse=True)
    clients = json.loads(
        invoke("plan", config(tmp_path), "--format", "json").stdout
    )["clients"]  # fmt: skip
    for row in rows:
        assert row["clients"] == pytest.approx(row["ratio"] ** 2 * len(clients), rel=0.01, abs=1)


def test_calibrate_needs_own_noise(tmp_path: Path) -> None:
    shown = invoke("plan", config(tmp_path), "--calibrate")
    assert shown.exit_code == 2 and "own_noise" in shown.stderr


@pytest.mark.parametrize("name", algorithm_names())
def test_own_noise_admits_what_calibrated_noise_admits(name: str) -> None:
    """Forms for equal weights and without counts: nothing else has noise that covers it."""
    admitted = {}
    for policy in ("calibrated", "ldp"):
        _, algorithm = Federation.from_config(law(name, policy)).build()
        try:
            admitted[policy] = PRESETS[policy].admit(algorithm).name
        except NotAdmitted:
            admitted[policy] = None
    assert admitted["ldp"] == admitted["calibrated"]
