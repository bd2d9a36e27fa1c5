"""Predictions and evaluations on a site's own tables are those of the run."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from secure_fgl.config import Config
from secure_fgl.data.own import OwnDataError, load_spec
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.predicting import evaluate, predict, spec_for
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import few, invoke

SITES = ("east", "north", "south", "west")
CLASSES = ("fine", "risky", "worst")


def spec(**more: Any) -> str:
    return "\n".join(f"{key}: {json.dumps(value)}" for key, value in more.items()) + "\n"


def node_sites(root: Path, seed: int = 3) -> None:
    """Write four sites whose classes show in their features."""
    rng = np.random.default_rng(seed)
    (root / "spec.yaml").write_text(
        spec(
            name="loans", task="node", features=["age", "income", "debt"], classes=CLASSES,
            records=64, split=[0.4, 0.3, 0.3],
        )
    )  # fmt: skip
    for number, name in enumerate(SITES):
        (root / name).mkdir()
        nodes = 30 + number
        y = rng.integers(len(CLASSES), size=nodes)
        x = rng.normal(size=(nodes, 3)) + 2 * np.eye(3)[y]
        rows = [[f"{name}-{n}", CLASSES[y[n]], *x[n]] for n in range(nodes)]
        rows[0][1] = ""  # one that nobody knows the class of
        write(root / name / "nodes.csv", ["id", "label", "age", "income", "debt"], rows)
        ends = [(u, v) for u in range(nodes) for v in range(u + 1, nodes) if rng.random() < 0.05]
        edges = [[f"{name}-{u}", f"{name}-{v}"] for u, v in ends]
        write(root / name / "edges.csv", ["source", "target"], edges)


def rating_sites(root: Path) -> None:
    rng = np.random.default_rng(5)
    (root / "spec.yaml").write_text(
        spec(
            name="films", task="rating", users=40, items=20, lowest=1.0, highest=5.0, records=64,
            split=[0.6, 0.2, 0.2],
        )
    )  # fmt: skip
    for number, name in enumerate(SITES):
        (root / name).mkdir()
        rows = [
            [user, item, round(float(np.clip(3 + rng.normal(), 1, 5)), 2)]
            for user in range(10 * number, 10 * number + 10)
            for item in rng.choice(20, size=8, replace=False)
        ]
        write(root / name / "ratings.csv", ["user", "item", "rating"], rows)


def graph_sites(root: Path, *, multilabel: bool) -> None:
    """Saved graphs, as molecules need RDKit."""
    rng = np.random.default_rng(7)
    (root / "spec.yaml").write_text(
        spec(
            name="shapes", task="graph", features=4, classes=["big", "round"],
            multilabel=multilabel, records=64, split=[0.5, 0.25, 0.25],
        )
    )  # fmt: skip
    for name in SITES:
        (root / name).mkdir()
        graphs = []
        for _ in range(24):
            nodes = int(rng.integers(2, 9))
            ends = [(u, v) for u in range(nodes) for v in range(u) if rng.random() < 0.5]
            edges = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).T
            x = torch.from_numpy(rng.normal(size=(nodes, 4)).astype(np.float32))
            y = torch.tensor([float(nodes > 5), float("nan") if nodes == 3 else float(nodes % 2)])
            graphs.append({"x": x, "edge_index": edges, "y": y if multilabel else (y[:1]).long()})
        torch.save(graphs, root / name / "data.pt")


def write(path: Path, head: list[str], rows: list[list[Any]]) -> None:
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(head)
        table.writerows(rows)


SHARED = "Model: the shared one"
KINDS = {
    "node": (node_sites, "fed_per", {"hidden": 8, "lr": 0.05}),
    "graph": (lambda root: graph_sites(root, multilabel=False), "fed_avg", {"hidden": 8}),
    "labels": (lambda root: graph_sites(root, multilabel=True), "apfl", {"hidden": 8}),
    "rating": (rating_sites, "fed_avg", {"hidden": 4}),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder for each kind of task: ``data`` and ``run``."""
    made = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SECURE_FGL_STATE", str(tmp_path_factory.mktemp("keys")))
        for kind, (write_sites, algorithm, model) in KINDS.items():
            root = made[kind] = tmp_path_factory.mktemp(kind)
            (root / "data").mkdir()
            write_sites(root / "data")
            chosen = Config.parse(
                {
                    "algorithm": {"name": algorithm, "rounds": 4},
                    "model": model,
                    "data": {
                        "name": "own", "root": str(root / "data"), "partition": {"clients": 4},
                        "features": "raw" if kind == "rating" else "standard",
                    },
                    "policy": "unsafe_plaintext",
                }
            )  # fmt: skip
            Federation(config=chosen, policy=few()).run(root / "run")
        yield made


@pytest.mark.parametrize("kind", KINDS)
def test_evaluations_of_all_sites_add_up_to_the_run_s_scores(
    kind: str, runs: dict[str, Path]
) -> None:
    root = runs[kind]
    run, found = Run(root / "run"), {}
    for name in SITES:
        shown = invoke("evaluate", root / "run", "--site", root / "data" / name, "--format", "json")
        assert shown.exit_code == 0, shown.stderr
        assert (SHARED if KINDS[kind][1] == "fed_avg" else f"that of {name}") in shown.stderr
        found[name] = json.loads(shown.stdout)
    if kind in ("node", "graph"):
        right = sum(one["correct"] for one in found.values())
        assert right / sum(one["records"] for one in found.values()) == pytest.approx(
            run.metrics["test_accuracy"], abs=1e-9
        )
        matrix = sum(np.array(one["confusion"]) for one in found.values())
        assert np.trace(matrix) == right
    if kind == "rating":
        error = sum(one["mae"] * one["records"] for one in found.values())
        count = sum(one["records"] for one in found.values())
        assert error / count == pytest.approx(run.metrics["test_mae"], rel=1e-4)


def test_predicting_the_training_tables_gives_the_run_s_own_scores(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    root, right, count = runs["node"], 0, 0
    run = Run(root / "run")
    for name in SITES:
        out = tmp_path / f"{name}.csv"
        shown = invoke("predict", root / "run", "--site", root / "data" / name, "--out", out)
        assert shown.exit_code == 0, shown.stderr
        predicted = {row["id"]: row for row in csv.DictReader(out.open())}
        told = list(csv.DictReader((root / "data" / name / "nodes.csv").open()))
        assert list(predicted) == [row["id"] for row in told]  # ids, and their order
        for row in predicted.values():
            shares = [float(row[f"p_{c}"]) for c in CLASSES]
            assert sum(shares) == pytest.approx(1.0, abs=1e-5)
            assert row["predicted"] == CLASSES[int(np.argmax(shares))]
        for row in test_rows(root / "data", name, told):
            right, count = right + (predicted[row["id"]]["predicted"] == row["label"]), count + 1
    assert right / count == pytest.approx(run.metrics["test_accuracy"], abs=1e-9)


def test_rows(root: Path, name: str, told: list[dict[str, str]]) -> list[dict[str, str]]:
    from secure_fgl.data.own import load_site, site_rng
    from secure_fgl.run.naming import learning_seed

    part = load_site(root / name, load_spec(root), site_rng(learning_seed(1, "split"), name))
    return [row for row, test in zip(told, part.test, strict=True) if test]


test_rows.__test__ = False  # type: ignore[attr-defined]


def test_labels_are_not_needed_and_not_read(runs: dict[str, Path], tmp_path: Path) -> None:
    root = runs["node"]
    new = tmp_path / "north"
    new.mkdir()
    told = list(csv.DictReader((root / "data/north/nodes.csv").open()))
    bare = [[r["id"], r["debt"], r["income"], r["age"]] for r in told]
    write(new / "nodes.csv", ["id", "debt", "income", "age"], bare)  # columns in any order
    (new / "edges.csv").write_text((root / "data/north/edges.csv").read_text())
    trained = Run(root / "run").trained("north")
    ours = predict(trained, root / "data" / "north", load_spec(root / "data"))
    theirs = predict(trained, new, spec_for(trained, new))  # no spec.yaml beside it: the run knows
    assert np.array_equal(ours.values, theirs.values) and ours.ids == theirs.ids
    shared = Run(runs["graph"] / "run").trained()
    assert shared.facts["class_names"] == ["big", "round"]


def test_new_records_are_scaled_as_the_site_scaled_its_own(runs: dict[str, Path]) -> None:
    trained = Run(runs["node"] / "run").trained("north")
    one = predict(trained, runs["node"] / "data/east", load_spec(runs["node"] / "data"))
    other = predict(
        Run(runs["node"] / "run").trained("east"),
        runs["node"] / "data/east",
        load_spec(runs["node"] / "data"),
    )
    assert not np.allclose(one.values, other.values)  # another head, another scale
    assert trained.scaling["mean"].shape == (3,)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.replace("debt", "debts"), "another features"),
        (lambda t: t.replace('"age", "income"', '"income", "age"'), "another features"),
        (lambda t: t.replace('"worst"', '"worse"'), "another classes"),
    ],
)
def test_other_columns_are_refused(
    change: Any, said: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    root = runs["node"]
    text = (root / "data" / "spec.yaml").read_text()
    assert change(text) != text
    (tmp_path / "spec.yaml").write_text(change(text))
    new = tmp_path / "north"
    new.mkdir()
    for name in ("nodes.csv", "edges.csv"):
        (new / name).write_text((root / "data/north" / name).read_text())
    shown = invoke("predict", root / "run", "--site", new, "--out", tmp_path / "p.csv")
    assert shown.exit_code == 2 and said in shown.stderr.replace("\n", " ")
    assert not (tmp_path / "p.csv").exists()
    (tmp_path / "spec.yaml").unlink()
    (new / "nodes.csv").write_text((new / "nodes.csv").read_text().replace("debt", "debts", 1))
    with pytest.raises(OwnDataError, match="debt"):
        predict(Run(root / "run").trained("north"), new, load_spec(root / "data"))


def test_a_blank_rating_is_predicted(runs: dict[str, Path], tmp_path: Path) -> None:
    root = runs["rating"]
    new = tmp_path / "north"
    new.mkdir()
    told = list(csv.DictReader((root / "data/north/ratings.csv").open()))
    rows = [[r["user"], r["item"], r["rating"]] for r in told]
    free = next(item for item in range(20) if str(item) not in {r[1] for r in rows if r[0] == "10"})
    write(new / "ratings.csv", ["user", "item", "rating"], [*rows, [10, free, ""]])
    trained = Run(root / "run").trained("north")
    found = predict(trained, new, spec_for(trained, new))
    assert found.ids["item"][-1] == free and np.isfinite(found.values).all()
    assert found.csv().splitlines()[0] == b"user,item,rating"
    shown = invoke("run", root / "run")  # training still needs every rating
    assert shown.exit_code == 2


def test_whose_model_is_used_is_said_and_can_be_chosen(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    root = runs["node"]
    new = tmp_path / "newcomer"
    new.mkdir()
    for name in ("nodes.csv", "edges.csv"):
        (new / name).write_text((root / "data/north" / name).read_text())
    shown = invoke("predict", root / "run", "--site", new, "--out", tmp_path / "a.csv")
    assert shown.exit_code == 2 and "not a whole model" in shown.stderr.replace("\n", " ")
    shown = invoke(
        "predict", root / "run", "--site", new, "--of", "north", "--out", tmp_path / "a.csv"
    )
    assert shown.exit_code == 0 and "that of north" in shown.stderr
    again = invoke(
        "predict", root / "run", "--site", new, "--of", "north", "--out", tmp_path / "a.csv"
    )
    assert again.exit_code == 2 and "is there already" in again.stderr
    root = runs["graph"]
    shown = invoke("evaluate", root / "run", "--site", root / "data/east", "--of", "nobody")
    assert shown.exit_code == 2 and "east, north, south, west" in shown.stderr


def test_a_shared_model_s_file_knows_no_training_records_and_says_so(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    root, file = runs["rating"], tmp_path / "model.npz"
    done = invoke("model", "export", root / "run", "--to", file)
    assert done.exit_code == 0, done.stderr
    words = ("evaluate", file, "--site", root / "data/west")
    shown = invoke(*words)
    told = " ".join(shown.stderr.split())
    assert shown.exit_code == 2 and "does not say which records trained it" in told
    assert "--part all (includes training records), or evaluate the run" in told
    assert invoke(*words, "--part", "all", "--out", tmp_path).exit_code == 0


def test_an_evaluation_is_what_scikit_learn_says_and_is_written_at_the_site(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    from sklearn import metrics

    root = runs["node"]
    shown = invoke("evaluate", root / "run", "--site", root / "data/west", "--part", "all")
    assert shown.exit_code == 0 and max(map(len, shown.stdout.splitlines())) <= 80
    folder = root / "data/west/evaluation"
    names = {file.name for file in folder.iterdir()}
    assert names == {"evaluation.json", "confusion.csv", "roc.csv", "calibration.csv"}
    found = json.loads((folder / "evaluation.json").read_text())
    told = list(csv.DictReader((root / "data/west/nodes.csv").open()))
    known = [row for row in told if row["label"]]
    trained = Run(root / "run").trained("west")
    values = predict(trained, root / "data/west", load_spec(root / "data"))
    best = dict(zip(values.ids["id"], values.values.argmax(axis=1), strict=True))
    y = [CLASSES.index(row["label"]) for row in known]
    seen = [best[row["id"]] for row in known]
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, seen))
    assert found["confusion"] == metrics.confusion_matrix(y, seen, labels=range(3)).tolist()
    bins = list(csv.DictReader((folder / "calibration.csv").open()))
    assert sum(int(row["records"]) for row in bins) == len(known)
    gap = sum(
        int(r["records"]) * abs(float(r["confidence"]) - float(r["right"])) for r in bins
    ) / len(known)
    assert found["calibration_error"] == pytest.approx(gap, abs=1e-5)
    assert invoke("evaluate", root / "run", "--site", root / "data/west").exit_code == 0  # again


def test_a_part_without_labels_is_said(runs: dict[str, Path]) -> None:
    trained = Run(runs["node"] / "run").trained("north")
    from secure_fgl.data.own import load_site, site_rng

    root = runs["node"] / "data"
    part: Any = load_site(root / "north", load_spec(root), site_rng(1, "x"))
    part.test[:] = False
    with pytest.raises(UsageError, match="has a label"):
        evaluate(trained, part)
    with pytest.raises(UsageError, match="no part"):
        evaluate(trained, part, "training")


def test_a_missing_package_is_said(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    root = runs["node"]
    shown = invoke("evaluate", root / "run", "--site", root / "data/north")
    assert shown.exit_code == 2 and "secure-fgl[evaluate]" in shown.stderr
    shown = invoke("model", "export", root / "run", "--site", "north", "--to", root / "x.onnx")
    assert shown.exit_code == 2 and "secure-fgl[onnx]" in shown.stderr
