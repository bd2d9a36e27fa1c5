"""Sites that hold next to nothing end no run: every algorithm and model, over one cohort of them.

One has nothing to train on, one no edge, one a single class, one a single record; the fifth is as
sites are.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithms.nn import alone, model_names, on_egos
from secure_fgl.catalogue import algorithm_names, preferred_model
from secure_fgl.checking.subject import HIDDEN, OPTIONS, ROUNDS, rated
from secure_fgl.config import Config
from secure_fgl.data import Dataset, Graph
from secure_fgl.federation import Federation
from tests.secure_fgl.cli_tools import few

SITES, EACH, FEATURES = 5, 12, 4
OF_NODES = {"fed_pub", "graph_fl", "graph_fl_domain"}
"""Algorithms that say themselves that they take no graphs to classify."""


def nodes() -> Graph:
    """Return a graph of five owners, of whom four hold next to nothing."""
    rng = np.random.default_rng(3)
    owner = np.repeat(np.arange(SITES), [EACH, EACH, EACH, 1, EACH])
    y = rng.integers(0, 2, len(owner))
    y[owner == 0], y[owner == 2] = -1, 0
    pairs = np.array([(u, v) for u, v in product(range(len(owner)), repeat=2) if u < v]).T
    inside = (owner[pairs[0]] == owner[pairs[1]]) & (owner[pairs[0]] != 1)
    edges = pairs[:, inside & (rng.random(pairs.shape[1]) < 0.3)]
    x = rng.normal(size=(len(owner), FEATURES)).astype(np.float32)
    return Graph("few", edges, x, y, 2, True, owner)


def molecules(root: Path) -> None:
    rows = {
        0: ["CCO,fine,test", "CCN,risky,val"],
        1: ["C,fine,train", "N,risky,train", "O,fine,val", "C,risky,test"],  # atoms without a bond
        2: ["CCO,fine,train", "CCN,fine,train", "CCC,fine,val", "CO,fine,test"],
        3: ["CCO,risky,train"],
        4: ["CCO,fine,train", "CCN,risky,train", "CCC,fine,val", "CO,risky,test"],
    }
    texts = {n: ["smiles,label,split", *rows[n]] for n in rows}
    spec = "name: few\ntask: graph\nclasses: [fine, risky]\nrecords: 16\nsplit: column\n"
    written(root, spec, "molecules", texts)


def ratings(root: Path) -> None:
    rows = {
        0: ["0,3,4,test"],
        1: ["1,0,2,train", "1,1,3,val", "1,2,5,test"],
        2: ["2,0,3,val", "2,1,4,test"],
        3: ["3,8,4,train"],
        4: ["4,0,4,train", "4,1,5,train", "4,2,1,val", "4,3,2,test"],
    }
    spec = (
        "name: few\ntask: rating\nusers: 5\nitems: 9\nlowest: 1\nhighest: 5\nrecords: 16\n"
        "split: column\nsynthetic: true\n"
    )
    written(root, spec, "ratings", {n: ["user,item,rating,split", *rows[n]] for n in rows})


def written(root: Path, spec: str, table: str, texts: dict[int, list[str]]) -> None:
    root.mkdir()
    (root / "spec.yaml").write_text(spec)
    for number, lines in texts.items():
        (root / f"site-{number}").mkdir()
        (root / f"site-{number}" / f"{table}.csv").write_text("\n".join(lines) + "\n")


def models_of(name: str, task: Any) -> tuple[str, ...]:
    return model_names(task) if name == "fed_avg" else (preferred_model(name).get(task, ""),)


def cells() -> list[tuple[str, str, str]]:
    """Return every algorithm with each kind of task that it may take, and each model with one."""
    found = []
    for name in algorithm_names():
        own = set(preferred_model(name))
        for task in ("rating",) if rated(name) else ("node", "graph"):
            if (not own or task in own) and not (task == "graph" and name in OF_NODES):
                found += [(name, task, model) for model in models_of(name, task)]
    of_one = [model for model in model_names("rating") if alone(model)]
    others = [model for model in of_one if model not in ("user_dot", "user_gat")]
    return found + [("fed_per_gnn", "rating", model) for model in others]


def federation(name: str, task: str, model: str, root: Path) -> Federation:
    data: dict[str, Any] = {"name": "own", "root": str(root)}
    whole: Dataset | None = None
    if task == "node":
        whole, data = nodes(), {"name": "few"}
    else:
        (ratings if task == "rating" else molecules)(root)
    data["partition"] = {"name": "by_owner", "clients": SITES}
    document = {
        "algorithm": {"name": name, "rounds": ROUNDS, "options": OPTIONS},
        "model": {"hidden": HIDDEN, **({"name": model} if model else {})},
        "data": data,
        "policy": "unsafe_plaintext",
        "evaluation": {"references": []},
        "seed": 1,
    }
    return Federation(whole, config=Config.parse(document), policy=few())


@pytest.mark.parametrize(("name", "task", "model"), cells())
def test_next_to_nothing_at_a_site_ends_no_run(
    name: str, task: str, model: str, tmp_path: Path
) -> None:
    run = federation(name, task, model, tmp_path / "own").run(tmp_path / "run")
    assert run.verify().ok and run.result["lost_rounds"] == []


def test_every_model_is_asked() -> None:
    asked = {model for _, _, model in cells() if model}
    assert asked >= {*model_names("node"), *model_names("graph")} - {
        name for name in model_names("node") if on_egos(name)
    }
    assert asked >= {name for name in model_names("rating") if alone(name)} - {"user_dot"}
