"""Graph and rating tasks from the command line's side: what is found beside the metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fgl import Federation
from secure_fgl.config import Config
from secure_fgl.data import GraphSet, Ratings
from secure_fgl.errors import UsageError

RATINGS: dict[str, Any] = {
    "algorithm": {"rounds": 2},
    "model": {"name": "dot", "hidden": 2},
    "data": {
        "records": 64,
        "partition": {"name": "item_category", "clients": 5},
        "split": [0.6, 0.2, 0.2],
    },
    "evaluation": {"references": ["mean", "local"]},
    "policy": "masks",
}


def ratings() -> Ratings:
    """Five shops of ten items each; twenty people rated some of them from 1 to 5."""
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((20, 50)) < 0.5)
    user, item = pairs.T
    given = rng.integers(1, 6, len(pairs)).astype(np.float32)
    return Ratings(
        "shops", user, item, given, 20, 50, 1.0, 5.0, synthetic=True, category=item // 10
    )


def one_class() -> GraphSet:
    """Sixty triangles that all say yes, so that no ranking can be judged."""
    edges = np.array([[0, 0, 1], [1, 2, 2]])
    return GraphSet(
        "yes",
        np.full(60, 3),
        np.concatenate([edges + 3 * graph for graph in range(60)], axis=1),
        np.ones((180, 2), np.float32),
        np.ones((60, 1), np.float32),
        1,
        multilabel=True,
        synthetic=True,
    )


def test_errors_stand_beside_predicting_the_mean_and_are_not_called_impossible(
    tmp_path: Path,
) -> None:
    data = ratings()
    run = Federation(data, config=Config.parse(RATINGS)).run(tmp_path / "run")
    metrics, seen = run.result["metrics"], run.result["references"]
    assert metrics["test_mae"] > 0.5 and metrics["test_rmse"] >= metrics["test_mae"]
    assert 0.5 < seen["mean"] < 3.0 and seen["local"] > 0.0
    assert run.verify().ok
    report = (run.path / "report" / "report.md").read_text()
    assert "IMPOSSIBLE_METRIC" not in report


def test_an_undefined_ranking_is_said_and_is_no_finding(tmp_path: Path) -> None:
    document = {
        "algorithm": {"rounds": 1},
        "model": {"hidden": 4},
        "data": {
            "partition": {"name": "dirichlet_count", "clients": 4, "options": {"beta": 50.0}},
            "split": [0.6, 0.2, 0.2],
        },
        "policy": "masks",
    }
    run = Federation(one_class(), config=Config.parse(document)).run(tmp_path / "run")
    assert run.result["metrics"]["test_roc_auc"] is None
    assert run.verify().ok
    assert "IMPOSSIBLE_METRIC" not in (run.path / "report" / "report.md").read_text()
    assert "evaluate.up.SUM: an entry of the total may have a single contributor" in str(
        run.view().plan_text, "utf-8"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": {"name": "bbbp", "partition": {"name": "louvain_balanced"}}}, "node data"),
        (
            {"data": {"name": "cora", "partition": {"name": "iid_nodes", "options": {"foo": 1}}}},
            "foo",
        ),
        ({"algorithm": {"name": "fed_gate", "options": {"fed_gate": {"steps": 1.5}}}}, "int"),
        ({"algorithm": {"name": "apfl", "options": {"apfl": {"alpha": "abc"}}}}, "finite number"),
        ({"algorithm": {"name": "fed_gate", "options": {"fed_gate": {"tau": 0.4}}}}, "too small"),
    ],
)
def test_a_plan_is_refused_for_what_could_never_run(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        Federation(config=Config.parse(changes)).plan()
    assert words in str(refused.value)


@pytest.mark.parametrize("name", ["apfl", "fed_gate", "apfl_gate"])
def test_an_optimiser_that_plain_steps_would_not_use_is_refused(name: str) -> None:
    def build(name: str = name, **model: object) -> None:
        document = {"algorithm": {"name": name}, "model": {"name": "gcn_linear", **model}}
        Federation.from_config(Config.parse(document)).build()

    for model, said in (
        ({"optimiser": "adam"}, "model.optimiser: adam."),
        ({"keep_moments": True}, "model.keep_moments: true."),
        ({"optimiser": "adam", "keep_moments": True}, "model.optimiser: adam and model.keep_"),
    ):
        with pytest.raises(UsageError) as refused:
            build(**model)
        assert said in str(refused.value) and "plain gradient steps" in refused.value.why
        build("fed_avg", **model)  # the control
    build(optimiser="sgd")
    build(optimiser="adamw")
