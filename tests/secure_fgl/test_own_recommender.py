"""FedPerGNN on a folder of one's own: one `ratings.csv` a user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from secure_fgl import Federation
from secure_fgl.config import Config
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import invoke

USERS = 4
SPEC = """
name: shop
task: rating
users: 4
items: 9
lowest: 1
highest: 5
records: 16
split: [0.6, 0.2, 0.2]
"""


@pytest.mark.parametrize("name", ["fed_per_gnn", "fcf"])
def test_own_ratings_train_one_user_a_folder(name: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "spec.yaml").write_text(SPEC, "utf-8")
    rng = np.random.default_rng(0)
    for user in range(USERS):
        (data / f"user-{user}").mkdir()
        lines = [f"{user},{item},{rng.integers(1, 6)}" for item in rng.permutation(9)]
        table = "\n".join(["user,item,rating", *lines[:7]]) + "\n"
        (data / f"user-{user}" / "ratings.csv").write_text(table, "utf-8")
    document = {
        "algorithm": {"name": name, "rounds": 2},
        "model": {"hidden": 4},
        "data": {"name": "own", "root": str(data), "partition": {"clients": USERS}},
        "policy": "masks",
        "resume": False,
    }
    federation = Federation.from_config(Config.parse(document))
    assert federation.headline() == "test_rmse"  # what recommenders report
    run = federation.run(tmp_path / "run")
    assert run.result["form"] == "secure_items"
    assert 0.0 < run.result["metrics"]["test_rmse"] < 4.0


def test_the_summary_names_the_error_that_references_are_in(
    tmp_path: Path,
) -> None:
    wanted = {
        "algorithm.name": "fcf",
        "algorithm.rounds": 1,
        "data.name": "synthetic_ratings",
        "data.options": "{users: 6, items: 20, each: 8}",
        "data.partition": "{name: user_per_client, clients: 6}",
        "model.hidden": 4,
        "model.name": "user_dot",
        "evaluation.references": "[mean, pmf]",
        "policy": "masks",
        "resume": "false",
    }
    (tmp_path / "config.yaml").write_text("{}", "utf-8")
    words = [word for key, value in wanted.items() for word in ("--set", f"{key}={value}")]
    out = tmp_path / "run"
    said = invoke("run", tmp_path / "config.yaml", "--out", out, *words)
    assert said.exit_code == 0, said.stderr
    lines = said.stdout.splitlines()
    told = {line[:16].strip(): line[16:].split()[0] for line in lines if line[:16].strip()}
    result = Run(out).result
    assert told["RMSE"] == f"{result['metrics']['test_rmse']:.4f}"
    assert told["predict the mean"] == f"{result['references']['mean']:.4f}"
    assert told["factorisation"] == f"{result['references']['pmf']:.4f}"
    assert "MAE" not in told
