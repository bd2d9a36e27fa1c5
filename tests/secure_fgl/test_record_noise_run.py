"""A run in which single records are hidden: those that train, and those that are counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from audits.accounting.account import account_of
from audits.accounting.counted import counted_reasons, scored_of
from audits.accounting.engines import false_noise
from audits.evidence.steps import Case, Verification
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import config, invoke
from tests.secure_fgl.test_private_run import settings, written

NOISE = {"guard": "record_noise", "epsilon": 4.0, "delta": 1e-5}


def noised(folder: Path, **facts: Any) -> Path:
    """Write the policy of private training, with noise on counts."""
    path = written(folder)
    document = yaml.safe_load(path.read_text())
    chain = [guard for guard in document["rules"]["SUM"] if guard["guard"] != "record_noise"]
    place = next(n for n, guard in enumerate(chain) if guard["guard"] == "quantise") + 1
    document["rules"]["SUM"] = [*chain[:place], {**NOISE, **facts}, *chain[place:]]
    document.pop("capture", None)
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> Path:
    folder = tmp_path_factory.mktemp("counted")
    words = settings(folder, noised(folder), data_root)
    shown = invoke("run", config(folder), "--out", folder / "run", *words)
    assert shown.exit_code == 0, shown.stderr
    return folder / "run"


def test_the_plan_states_one_epsilon_for_those_that_train_and_one_for_those_counted(
    run: Path,
) -> None:
    plan = json.loads((run / "plan.json").read_text())
    assert "for one validation or test graph: epsilon <= 4.0, delta = 1e-05" in plan["budget"]
    assert "For one training graph: epsilon <= 8" in plan["budget"]
    counted = {item["id"]: item["counted"] for item in plan["items"] if item["counted"]}
    assert set(counted) == {"train_alike.up.SUM", "evaluate.up.SUM"}
    (one, *others) = counted.values()
    assert all(other == one for other in others)  # one target for both
    assert (one["fields"], one["releases"], one["epsilon"]) == (6, 4, "4.0")
    moves = {
        field["name"]: field["moves"]
        for item in plan["items"] if item["id"] == "evaluate.up.SUM"
        for message in item["messages"] for field in message["fields"]
    }  # fmt: skip
    assert moves["test_share"] == 10_000 and moves["val_correct"] == 1


def test_account_and_report_count_what_left_with_noise(run: Path) -> None:
    shown = invoke("audit", "account", run, "--format", "json")
    assert shown.exit_code == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert found["verdict"] == "NOT FALSIFIED", found["reasons"]
    (counted,), trained = found["counted"], found["records"]["recorded"]
    single = counted["recorded"]
    assert (single["unit"], single["adjacency"], single["model"]) == (
        "graph",
        "add-remove",
        "local",
    )
    assert 3.99 < float(single["value"]) <= 4.0 and 7.5 < float(trained["value"]) <= 8.0
    assert found["epsilon"]["unit"] == "client" and found["epsilon"]["value"] == "infinity"
    assert "an epsilon of their own" in found["records"]["statement"]
    assert json.loads((run / "result.json").read_text())["verdict"] == "self-consistent only"
    for name in ("html", "md", "json"):
        told = (run / "report" / f"report.{name}").read_text("utf-8")
        assert "one validation or test graph" in told
    counted_line = f"epsilon {single['value']} at delta 1e-05, counted from the ledgers; planned: 4"
    assert f"Of one validation or test graph: {counted_line}" in told
    ledger = (run / "ledger" / "client-1.jsonl").read_text()
    assert "record_noise(mechanism=discrete_gaussian" in ledger
    (entry,) = (json.loads(line) for line in ledger.splitlines() if '"kind":"budget"' in line)
    assert entry["unit"] == "graph"


def test_a_plan_with_less_noise_on_counts_falsifies_the_claim(run: Path) -> None:
    """Control for the account: the honest run above is borne out."""
    case = Case(Run(run).view())
    items = tuple(
        item.model_copy(
            update={"counted": item.counted.model_copy(
                update={"scale": repr(float(item.counted.scale) / 2)})}
        ) if item.counted else item
        for item in case.plan.items
    )  # fmt: skip
    (honest,) = scored_of(case)
    assert not list(counted_reasons(honest))
    case.__dict__["plan"] = case.plan.model_copy(update={"items": items})
    (scored,) = scored_of(case)
    goal = "above the target of 4 for one validation or test graph"
    assert sum(goal in reason for reason in counted_reasons(scored)) == 2
    assert "noise on counts is not what the policy needs" in false_noise(case.plan, case.policy)


def test_a_plan_without_the_noise_on_counts_falsifies_the_claim(run: Path) -> None:
    """Nothing of it is counted then, and verification stops at the plan too."""
    case = Case(Run(run).view())
    assert account_of(case, Verification(())).verdict == "NOT FALSIFIED"
    case = Case(Run(run).view())
    bare = tuple(item.model_copy(update={"counted": None}) for item in case.plan.items)
    case.__dict__["plan"] = case.plan.model_copy(update={"items": bare})
    found = account_of(case, Verification(()))
    assert found.verdict == "FALSIFIED" and found.counted == ()
    assert any("noise on counts is not what the policy needs" in reason for reason in found.reasons)


@pytest.mark.parametrize(
    ("facts", "words"),
    [({"delta": 1e-3}, "set it to 0.0001"), ({"epsilon": 0.0}, "take 0.1 to 16"),
     ({"epsilon": 1e9}, "take 0.1 to 16"), ({"mechanism": "sqkr"}, "discrete_gaussian")],
)  # fmt: skip
def test_bad_targets_for_records_are_refused(
    tmp_path: Path, data_root: Path, facts: dict[str, Any], words: str
) -> None:
    path = noised(tmp_path, **facts)
    shown = invoke("plan", config(tmp_path), *settings(tmp_path, path, data_root))
    assert shown.exit_code == 2 and words in " ".join(shown.stderr.split())


def test_counts_alone_are_refused_as_their_model_was_trained_on_records(tmp_path: Path) -> None:
    path = noised(tmp_path)
    document = yaml.safe_load(path.read_text())
    del document["training"]
    path.write_text(yaml.safe_dump(document))
    shown = invoke("plan", config(tmp_path), "--set", f"policy={path}")
    assert shown.exit_code == 2 and "say how they are hidden (training)" in " ".join(
        shown.stderr.split()
    )


def test_node_tasks_are_refused_with_the_receptive_field_as_the_reason(tmp_path: Path) -> None:
    shown = invoke("plan", config(tmp_path), "--set", f"policy={noised(tmp_path)}")
    assert shown.exit_code == 2 and "neighbours" in shown.stderr
