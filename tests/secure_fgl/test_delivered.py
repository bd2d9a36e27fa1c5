"""Which model a run delivers: one that nobody trained is called so wherever it is used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from audits.report.learning import NEVER, NEVER_TRAINED
from secure_fgl import Run
from secure_fgl.run.model_digest import npz_digest
from tests.secure_fgl.cli_tools import invoke
from tests.secure_fgl.test_no_records import CLIENTS, document, own, written

SAID = "MODEL NEVER TRAINED"


def misled(root: Path) -> Path:
    """Write sites whose validation labels are the other ones: what learns gets worse on them."""
    own(root, "ttvx")
    for site in range(CLIENTS):
        file = root / f"site-{site}" / "nodes.csv"
        head, *rows = file.read_text().splitlines()
        other = {"fine": "risky", "risky": "fine"}
        cells = [row.split(",") for row in rows]
        for cell in cells:
            cell[1] = other[cell[1]] if cell[-1] == "val" else cell[1]
        file.write_text("\n".join([head, *map(",".join, cells)]) + "\n")
    return root


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A run whose best round is 0, its data, and what the command printed."""
    folder = tmp_path_factory.mktemp("untrained")
    root = misled(folder / "data")
    chosen = document(root, algorithm={"name": "fed_avg", "rounds": 3, "epochs": 40})
    shown = invoke("run", written(folder, chosen), "--out", folder / "run")
    assert shown.exit_code == 0, shown.output
    return folder / "run", root, shown.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """The control."""
    folder = tmp_path_factory.mktemp("trained")
    root = own(folder / "data", "ttvx")
    shown = invoke("run", written(folder, document(root)), "--out", folder / "run")
    assert shown.exit_code == 0, shown.output
    return folder / "run", root, shown.stdout


def test_run_says_it_first(untrained: tuple[Path, Path, str]) -> None:
    path, _, printed = untrained
    assert Run(path).result["metrics"]["best_round"] == 0
    first = next(line for line in printed.splitlines() if line.strip())
    assert first.startswith("model") and NEVER_TRAINED in first
    assert Run(path).verify().ok


def test_the_report_says_it_at_its_top(untrained: tuple[Path, Path, str]) -> None:
    path, _, _ = untrained
    report = json.loads((path / "report" / "report.json").read_text("utf-8"))
    assert NEVER_TRAINED in report["notes"]
    for file in ("report.html", "report.md"):
        text = (path / "report" / file).read_text("utf-8").replace("\\_", "_")
        assert 0 <= text.index(SAID) < text.index("trained fed_avg"), file


def test_predict_evaluate_and_export_say_it(
    untrained: tuple[Path, Path, str], tmp_path: Path
) -> None:
    path, root, _ = untrained
    site = root / "site-0"
    for words in (
        ("predict", path, "--site", site, "--out", tmp_path / "p.csv"),
        ("evaluate", path, "--site", site, "--out", tmp_path / "e"),
        ("model", "export", path, "--to", tmp_path / "m.npz"),
    ):
        shown = invoke(*words)
        assert shown.exit_code == 0, shown.output
        assert SAID in shown.stderr, words
    assert json.loads((tmp_path / "m.json").read_text())["chosen"] == NEVER


def test_of_a_trained_model_nothing_of_that_is_said(
    trained: tuple[Path, Path, str], tmp_path: Path
) -> None:
    """Control."""
    path, root, printed = trained
    assert Run(path).result["metrics"]["best_round"] > 0 and SAID not in printed
    shown = invoke("predict", path, "--site", root / "site-0", "--out", tmp_path / "p.csv")
    assert shown.exit_code == 0 and SAID not in shown.stderr
    assert SAID not in (path / "report" / "report.md").read_text("utf-8")


@pytest.mark.parametrize("which", ["untrained", "trained"])
def test_the_digest_that_is_printed_is_that_of_the_model_that_is_scored(
    which: str, request: pytest.FixtureRequest
) -> None:
    path, _, printed = request.getfixturevalue(which)
    run = Run(path)
    best, last = (npz_digest((path / "checkpoints" / f"{n}.npz").read_bytes())
                  for n in ("best", "final"))  # fmt: skip
    assert best != last and (run.delivered_sha256, run.model_sha256) == (best, last)
    rows = [line.split() for line in printed.splitlines() if "sha256" in line.split()[1:2]]
    assert [(row[0], row[2]) for row in rows] == [("model", best), ("last", last)]
    number = run.result["metrics"]["best_round"]
    assert (f"after round {number}" if number else "before training") in printed
    facts = {fact.name: fact.value for fact in run.leakage().results}
    assert (facts["delivered_sha256"], facts["model_sha256"]) == (best, last)
    weights = np.load(path / "checkpoints" / "best.npz")["weights"]
    assert np.array_equal(run.trained().source.model.shared, weights)
