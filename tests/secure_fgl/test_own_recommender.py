"""FedPerGNN on a folder of one's own: one `ratings.csv` a user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from secure_fgl import Federation
from secure_fgl.config import Config

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
    run = Federation.from_config(Config.parse(document)).run(tmp_path / "run")
    assert run.result["form"] == "secure_items"
    assert 0.0 < run.result["metrics"]["test_rmse"] < 4.0
