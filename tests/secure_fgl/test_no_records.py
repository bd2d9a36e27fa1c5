"""Runs in which records are missing: what counts then, and what is said in place of a number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from algorithms.tasks.evaluation import Tracked
from algorithms.tasks.scores import Score
from protocols.policy.policy import PrivacyPolicy
from secure_fgl import Federation, Run
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.run import simulation
from tests.secure_fgl.cli_tools import invoke

CLIENTS = 4
NODES = {"spec": "task: node\nfeatures: [a, b]\nclasses: [fine, risky]\n", "table": "nodes"}


def own(root: Path, roles: str, *, labels: bool = True) -> Path:
    """Write four sites whose nodes have these roles in turn, with or without a label."""
    root.mkdir()
    spec = f"name: few\n{NODES['spec']}records: 64\nsplit: column\nsynthetic: true\n"
    (root / "spec.yaml").write_text(spec)
    rng = np.random.default_rng(0)
    for site in range(CLIENTS):
        (root / f"site-{site}").mkdir()
        rows = ["id,label,a,b,split"]
        for number in range(48):
            role = {"t": "train", "v": "val", "x": "test"}[roles[number % len(roles)]]
            kind = number % 2
            a, b = rng.normal(kind, 0.3), rng.normal(1 - kind, 0.3)
            label = ("fine", "risky")[kind] if labels else ""
            rows.append(f"{number},{label},{a:.3f},{b:.3f},{role if labels else ''}")
        (root / f"site-{site}" / "nodes.csv").write_text("\n".join(rows) + "\n")
        (root / f"site-{site}" / "edges.csv").write_text("source,target\n0,2\n1,3\n")
    return root


def document(root: Path, **more: Any) -> dict[str, Any]:
    return {
        "data": {
            "name": "own",
            "root": str(root),
            "partition": {"name": "by_owner", "clients": CLIENTS},
        },
        "algorithm": {"name": "fed_avg", "rounds": 30},
        "model": {"hidden": 8},
        "policy": "masks",
        "evaluation": {"references": []},
        "seed": 1,
        **more,
    }


def written(tmp_path: Path, found: dict[str, Any]) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(found))  # JSON is YAML
    return file


def test_without_a_validation_record_the_last_round_counts(tmp_path: Path) -> None:
    root = own(tmp_path / "data", "ttxx")
    shown = invoke("run", written(tmp_path, document(root)), "--out", tmp_path / "run")
    assert shown.exit_code == 0, shown.output
    run = Run(tmp_path / "run")
    metrics = run.result["metrics"]
    assert metrics["best_round"] == 30 and metrics["val_accuracy"] is None
    assert metrics["test_accuracy"] > 0.9  # control: the model before training had 0.5
    assert "no validation records, after round 30, the last" in shown.stdout.replace("\n", " ")
    assert run.verify().ok
    best, final = (np.load(run.path / "checkpoints" / f"{n}.npz") for n in ("best", "final"))
    assert np.array_equal(best["weights"], final["weights"])
    assert run.trained().facts["chosen"] == "last round: no validation score"
    for file in ("report.html", "report.md"):
        text = " ".join((run.path / "report" / file).read_text("utf-8").split())
        assert "nothing says which round was best" in text, file
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert {row["val_accuracy"] for row in rows} == {None}


def test_with_validation_records_nothing_of_that_is_said(tmp_path: Path) -> None:
    """Control."""
    run = Federation(config=Config.parse(document(own(tmp_path / "data", "ttvx")))).run(
        tmp_path / "run"
    )
    assert run.trained().facts["chosen"] == "best validation score"
    assert "which round was best" not in (run.path / "report" / "report.md").read_text("utf-8")


def test_without_a_test_record_no_number_stands_for_the_model(tmp_path: Path) -> None:
    root = own(tmp_path / "data", "ttvv")
    shown = invoke("run", written(tmp_path, document(root)), "--out", tmp_path / "run")
    assert shown.exit_code == 0 and "no test records" in shown.stdout
    assert Run(tmp_path / "run").result["metrics"]["test_accuracy"] is None
    report = (tmp_path / "run" / "report" / "report.md").read_text("utf-8")
    assert "No test score could be computed" in " ".join(report.split())


def test_a_result_that_names_the_start_model_best_does_not_verify(tmp_path: Path) -> None:
    root = own(tmp_path / "data", "ttxx")
    run = Federation(config=Config.parse(document(root))).run(tmp_path / "run")
    file = run.path / "result.json"
    result = json.loads(file.read_text())
    first = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[0])
    number = first.pop("round")
    file.write_text(json.dumps({**result, "metrics": {**first, "best_round": number}}))
    failed = Run(run.path).verify().failed
    assert failed is not None and failed.name == "result"


def test_merits_that_are_not_there_never_beat_one_that_is() -> None:
    score = Score(val_correct=0, val_count=0, test_correct=0, test_count=0, test_share=0,
                  test_clients=0)  # fmt: skip
    tracked: Tracked[str] = Tracked("start")
    for state, merit in (("a", None), ("b", None), ("c", 0.0), ("d", None), ("e", 0.0)):
        tracked = tracked.record(score, merit, state)
    assert (tracked.best, tracked.best_merit, tracked.best_state) == (2, 0.0, "c")


def test_a_federation_without_a_label_is_refused_before_it_starts(tmp_path: Path) -> None:
    root = own(tmp_path / "data", "t", labels=False)
    shown = invoke("run", written(tmp_path, document(root)), "--out", tmp_path / "run")
    assert shown.exit_code == 2 and "No client has a training record" in shown.stderr
    assert not (tmp_path / "run" / "ledger").exists()


def test_where_nobody_could_know_the_first_total_ends_the_run(tmp_path: Path) -> None:
    """Between organisations no party sees all sites; the total of records is the first to tell."""
    root = own(tmp_path / "data", "vx")
    config = Config.parse(document(root))

    with (
        patch.object(simulation, "any", lambda found: True, create=True),
        pytest.raises(UsageError, match="No client has a training record"),
    ):
        Federation(config=config).run(tmp_path / "run")
    rows = (tmp_path / "run" / "ledger" / "aggregator.jsonl").read_text().splitlines()
    opened = [json.loads(row) for row in rows]
    assert {entry["round"] for entry in opened if entry.get("round")} == {1}


def test_under_noise_nothing_rests_on_how_many_records_there_are(tmp_path: Path) -> None:
    root = own(tmp_path / "data", "vx")
    config = Config.parse(document(root, algorithm={"name": "fed_avg", "rounds": 1}))
    federation = Federation(config=config, policy=PrivacyPolicy.preset("calibrated"))
    if not federation.plan().noised:
        pytest.fail("the control needs a policy with an epsilon")
    run = federation.run(tmp_path / "run")
    assert run.verify().ok
