"""A run with private training from the command line: what it says, spends and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.secure_fgl.cli_tools import ROOT, config, invoke


def written(folder: Path, **training: object) -> Path:
    """Write the example's policy with other numbers."""
    document = yaml.safe_load((ROOT / "examples/molecules_dp_policy.yaml").read_text())
    document["training"].update({"rate": 0.2, "batch": 6, "steps": 2, **training})
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def settings(folder: Path, policy: Path, data_root: Path) -> list[str]:
    wanted = {
        "algorithm.name": "fed_avg",
        "algorithm.rounds": 3,
        "model.name": "gcn_readout",
        "model.hidden": 8,
        "data.name": "mutag",
        "data.options": "{}",
        "data.root": data_root,
        "data.split": "[0.6, 0.2, 0.2]",
        "data.partition.name": "dirichlet_count",
        "data.partition.options": "{beta: 50.0}",
        "policy": policy,
        "budget.store": folder / "budgets",
        "evaluation.references": "[]",
    }
    return [word for key, value in wanted.items() for word in ("--set", f"{key}={value}")]


def test_a_private_run_states_and_keeps_its_target(tmp_path: Path, data_root: Path) -> None:
    words = settings(tmp_path, written(tmp_path), data_root)
    shown = invoke("run", config(tmp_path), "--out", tmp_path / "run", *words)
    assert shown.exit_code == 0, shown.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["form"] == "mean_of_changes"  # counts of training records do not leave
    assert result["verdict"] == "self-consistent only"
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["training"]["held_out"] == ["Score"]
    found = json.loads(invoke("audit", "account", tmp_path / "run", "--format", "json").stdout)
    assert found["verdict"] == "NOT FALSIFIED"
    single = found["records"]["recorded"]
    assert (single["unit"], single["model"], single["scope"]) == ("graph", "local", "run")
    assert 7.5 < float(single["value"]) <= 8.0
    assert found["epsilon"]["unit"] == "client" and found["epsilon"]["value"] == "infinity"
    table = invoke("audit", "account", tmp_path / "run").stdout
    assert "For one training graph" in table and "mutag#graph" in table
    notes = sorted(note.name for note in (tmp_path / "run" / "budgets").glob("*"))
    assert notes == [f"client-{i}.graph.checkpoint" for i in range(1, 6)]
    said = (tmp_path / "run" / "report" / "report.md").read_text("utf-8")
    assert "Of one training graph: epsilon" in said and "no noise was added" not in said
    again = invoke("run", config(tmp_path), "--out", tmp_path / "again", *words)
    assert again.exit_code == 7 and "privacy budget" in again.stderr
    assert "mutag#graph" in again.stderr


def test_o21_a_node_task_is_refused_at_plan_time_with_the_reason(tmp_path: Path) -> None:
    words = ("--set", f"policy={written(tmp_path)}")
    for verb in ("plan", "run"):
        shown = invoke(verb, config(tmp_path), *words)
        assert shown.exit_code == 2
        assert "hides single records" in shown.stderr and "neighbours" in shown.stderr


@pytest.mark.parametrize("name", ["fed_avg", "apfl", "fed_gate"])
def test_the_example_plans_for_every_algorithm_that_sends_gradients_only(
    name: str, tmp_path: Path, data_root: Path
) -> None:
    words = settings(tmp_path, written(tmp_path), data_root)
    shown = invoke("plan", config(tmp_path), *words, "--set", f"algorithm.name={name}")
    assert shown.exit_code == 0, shown.stderr
