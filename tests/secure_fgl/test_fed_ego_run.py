"""FedEgo from the configuration's side: models, metrics, forms, and the example."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithms.tasks.ego import EgoTask
from algorithms.tasks.node import NodeTask
from benchmarks.fed_ego import rows
from protocols.errors import NotAdmitted
from secure_fgl import Federation
from secure_fgl.config import Config
from secure_fgl.data import Graph
from secure_fgl.errors import UsageError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fed_ego_cora.yaml"


def graph(nodes: int = 500) -> Graph:
    """Five classes whose nodes know each other, and say so in their features."""
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=nodes)
    near = rng.random((nodes, nodes)) < np.where(y[:, None] == y, 0.08, 0.01)
    edges = np.stack(np.nonzero(np.triu(near, k=1)))
    x = (rng.random((nodes, 20)) < 0.1 + 0.5 * (np.arange(20) % 5 == y[:, None])).astype(np.float32)
    return Graph("five", edges, x, y, classes=5, synthetic=True)


def config(**more: Any) -> Config:
    partition = {
        "name": "label_skew_major",
        "clients": 5,
        "options": {"alpha_local": 0.5, "test_nodes": 40},
    }
    document: dict[str, Any] = {
        "algorithm": {"name": "fed_ego", "rounds": 2, "options": {"fed_ego": {"passes": 2}}},
        "model": {"hidden": 32, "lr": 0.01, "batch": 32, "options": {"fan_out": 2}},
        "data": {"name": "five", "partition": partition},
        "evaluation": {"at": "trained"},
        "policy": "masks",
    }
    for key, value in more.items():
        document[key] = {**document.get(key, {}), **value} if isinstance(value, dict) else value
    return Config.parse(document)


def test_fed_ego_takes_an_ego_model_where_none_is_named() -> None:
    task, _ = Federation(graph(), config=config()).build()
    assert isinstance(task, EgoTask) and task.positions == 7
    named, _ = Federation(graph(), config=config(model={"name": "ego_mlp"})).build()
    assert isinstance(named, EgoTask) and named.positions == 1


def test_other_algorithms_train_on_ego_graphs_if_their_model_asks_for_it() -> None:
    average = {"name": "fed_avg", "rounds": 1}
    task, _ = Federation(
        graph(), config=config(algorithm=average, model={"name": "ego_sage"})
    ).build()
    assert isinstance(task, EgoTask)
    plain, _ = Federation(graph(), config=config(algorithm=average, model={"options": {}})).build()
    assert type(plain) is NodeTask
    with pytest.raises(UsageError, match="fan_out"):
        Federation(graph(), config=config(algorithm=average)).build()


def test_fed_ego_on_another_model_is_refused() -> None:
    other = config(model={"name": "gcn", "options": {}})
    with pytest.raises(UsageError, match=r"model\.name to ego_sage"):
        Federation(graph(), config=other).build()


FORMS = [("masks", "mixup"), ("shuffled", "mixup"), ("strict", "no_ego_upload")]


@pytest.mark.parametrize(("policy", "form"), FORMS)
def test_a_run_has_both_f1_scores_and_its_evidence_holds(
    policy: str, form: str, tmp_path: Path
) -> None:
    run = Federation(graph(), config=config(policy=policy)).run(tmp_path / "run")
    assert run.result["form"] == form
    metrics = run.result["metrics"]
    assert 0.0 < metrics["global_f1"] < 1.0 and 0.0 < metrics["local_f1"] < 1.0
    assert metrics["local_f1"] == metrics["test_accuracy_client_mean"]
    assert run.verify().ok
    assert "IMPOSSIBLE_METRIC" not in (run.path / "report" / "report.md").read_text()
    kept = np.load(run.path / "checkpoints" / "final.npz")
    assert "phi" in kept.files and np.isfinite(kept["phi"]).all()
    if form == "mixup":
        mixed = [e for e in run.view().plan_text.split(b"\n") if b'"MIXED"' in e]
        assert mixed


@pytest.mark.parametrize("moment", ["after_upload", "before_shares"])
def test_o5_who_vanishes_between_two_steps_of_no_ego_upload_loses_the_round(
    moment: str, tmp_path: Path
) -> None:
    """Two steps' gradients differ little: the totals with and without a client tell its own."""
    more = config(policy="strict", faults={"drop": f"2@1:{moment}"}, algorithm={"rounds": 3})
    run = Federation(graph(), config=more).run(tmp_path / "run")
    assert run.result["form"] == "no_ego_upload" and run.result["lost_rounds"] == [1]
    assert run.verify().ok
    ledger = (run.path / "ledger" / "aggregator.jsonl").read_text().splitlines()
    opened = [e for e in map(json.loads, ledger) if e["kind"] == "open"]
    sums: dict[int, list[int]] = {}
    for entry in opened:
        if "disclosure" not in entry:  # a sum, and no row
            sums.setdefault(entry["round"], []).append(entry["survivors"])
    # train's scores; then two steps where the round was not lost, by the same clients
    assert sums[1] == [5] and sums[2] == sums[3] == [5, 5, 5]


def test_a_client_that_misses_the_mean_loses_no_round_of_mixup(tmp_path: Path) -> None:
    """No sum follows, so there are no two totals to compare."""
    more = config(faults={"drop": "2@1:after_upload"})
    run = Federation(graph(), config=more).run(tmp_path / "run")
    assert run.result["form"] == "mixup" and run.result["lost_rounds"] == []
    assert run.verify().ok


@pytest.mark.parametrize("policy", ["pilot", "masks", "strict"])
def test_single_ego_graphs_are_refused_when_the_plan_is_made(policy: str) -> None:
    shown = {"options": {"fed_ego": {"mixup": False}}}
    with pytest.raises(NotAdmitted) as error:
        Federation(graph(), config=config(policy=policy, algorithm=shown)).plan()
    if policy != "strict":  # which names no MIXED at all
        assert "mixup: false" in error.value.why and "unsafe_plaintext" in error.value.why
    assert (
        Federation(graph(), config=config(policy="unsafe_plaintext", algorithm=shown))
        .plan()
        .form.startswith("unmixed")
    )


def test_other_algorithms_and_a_rule_without_a_global_test_have_these_metrics(
    tmp_path: Path,
) -> None:
    average = {"name": "fed_avg", "rounds": 1, "options": {}}
    ours = config(algorithm=average, model={"name": "ego_sage"})
    run = Federation(graph(), config=ours).run(tmp_path / "one")
    assert 0.0 < run.result["metrics"]["global_f1"] < 1.0
    part = {"partition": {"name": "iid_nodes", "clients": 5}}
    plain = config(algorithm=average, model={"options": {}}, data=part)
    assert (
        "global_f1" not in Federation(graph(), config=plain).run(tmp_path / "two").result["metrics"]
    )


@pytest.mark.parametrize(("policy", "form"), [("pilot", "mixup"), ("strict", "no_ego_upload")])
def test_the_example_plans_without_data_in_the_form_that_its_policy_takes(
    policy: str, form: str
) -> None:
    settings = ["data.root=/nowhere", f"policy={policy}"]
    plan = Federation.from_config(Config.load(EXAMPLE, settings)).plan()
    assert plan.form == form
    options: dict[str, Any] = Config.load(EXAMPLE).data.partition.options
    assert options["strict"] is False  # the paper's protocol, which the example says
    assert (plan.dims["positions"], plan.dims["embedding"]) == (43, 512)


@pytest.mark.parametrize("form", ["strict", "published"])
@pytest.mark.parametrize("kind", ["", "_size", "_variants"])
def test_tables_hold_one_form_of_the_partition_and_rows_that_run(form: str, kind: str) -> None:
    found = rows(form + kind)
    assert {s["data.partition.options"]["strict"] for s in found.values()} == {form == "strict"}
    for settings in found.values():
        document: dict[str, Any] = {}
        for key, value in settings.items():
            *path, last = key.split(".")
            place = document
            for step in path:
                place = place.setdefault(step, {})
            place[last] = value
        Federation.from_config(Config.parse(document)).build()
