"""What a first afternoon met: mistakes that were silent, or whose message blamed something else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from audits.explain import find
from secure_fgl.data.loading import NO_EDGE, NONE, ONE_CLASS
from tests.plugins.page import MODEL, changed, write
from tests.secure_fgl.cli_tools import CONFIG, invoke
from tests.secure_fgl.test_no_records import document, own, written


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return own(tmp_path / "data", "ttvx")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(CONFIG)
    return file


def rewritten(file: Path, change: Any) -> None:
    head, *rows = file.read_text().splitlines()
    cells = [change(row.split(",")) for row in rows]
    file.write_text("\n".join([head, *map(",".join, cells)]) + "\n")


def run(tmp_path: Path, root: Path, **more: Any) -> str:
    """Return what a short run says on stderr."""
    chosen = document(root, algorithm={"name": "fed_avg", "rounds": 1}, **more)
    shown = invoke("run", written(tmp_path, chosen), "--out", tmp_path / "run")
    assert shown.exit_code == 0, shown.output
    return words(shown.stderr)


def refused(*arguments: object) -> str:
    """Return what a command that cannot be run says."""
    shown = invoke(*arguments)
    assert shown.exit_code == 2, shown.output
    return words(shown.stderr)


# --- what tables lack -----------------------------------------------------------------------------


def test_a_site_without_a_training_record_is_named_as_one_with_few_is(
    tmp_path: Path, root: Path
) -> None:
    def blank(row: list[str]) -> list[str]:
        return [row[0], "", *row[2:4], ""]

    rewritten(root / "site-2" / "nodes.csv", blank)
    said = run(tmp_path, root)
    assert f"site-2: {NONE}" in said and "site-1: no training" not in said


def test_a_site_that_knows_one_class_is_named(tmp_path: Path, root: Path) -> None:
    rewritten(root / "site-3" / "nodes.csv", lambda row: [row[0], "fine", *row[2:]])
    said = run(tmp_path, root)
    assert f"site-3: {ONE_CLASS}" in said and f"site-0: {ONE_CLASS}" not in said


def test_tables_without_an_edge_are_said_to_have_none(tmp_path: Path, root: Path) -> None:
    assert NO_EDGE not in run(tmp_path, root)
    for site in root.glob("site-*"):
        (site / "edges.csv").write_text("source,target\n")
    (tmp_path / "two").mkdir()
    assert NO_EDGE in run(tmp_path / "two", root)


# --- configurations -------------------------------------------------------------------------------


def test_an_empty_configuration_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    for text in ("", "# nothing yet\n"):
        file.write_text(text)
        assert f"The configuration {file} is empty." in refused("plan", file)


def test_a_table_in_the_place_of_a_configuration_says_what_to_give(root: Path) -> None:
    assert "What to do: give a configuration" in refused("run", root / "site-0" / "nodes.csv")


def test_the_task_of_spec_yaml_is_blamed_and_not_the_model(tmp_path: Path, root: Path) -> None:
    spec = yaml.safe_load((root / "spec.yaml").read_text())
    spec |= {"task": "graph", "features": None}
    (root / "spec.yaml").write_text(yaml.safe_dump({k: v for k, v in spec.items() if v}))
    chosen = document(root, model={"name": "gcn", "hidden": 8})
    said = refused("plan", written(tmp_path, chosen))
    assert "spec.yaml says task: graph, and the model gcn is for another task" in said
    assert "correct the task in spec.yaml" in said


def test_a_model_of_another_task_is_called_that(tiny: Path) -> None:
    said = refused("plan", tiny, "--set", "model.name=gin")
    assert "The model 'gin' is for graph tasks, and this is a node task" in said


def test_data_root_that_is_a_file(tmp_path: Path, root: Path) -> None:
    chosen = document(root)
    chosen["data"]["root"] = str(root / "spec.yaml")
    said = refused("plan", written(tmp_path, chosen))
    assert "is one site's folder" not in said
    assert f"{root}/spec.yaml is a file" in said and f"set data.root to {root}" in said


def test_a_name_that_is_no_folder_is_told_which_was_meant(tmp_path: Path, root: Path) -> None:
    chosen = document(root)
    names = ["site-0", "site-1", "site-2", "sites-3"]
    chosen["data"]["partition"] = {"name": "by_owner", "names": names}
    said = refused("run", written(tmp_path, chosen), "--out", tmp_path / "run")
    assert "there is no such folder" in said and "did you mean 'site-3'?" in said


def test_capitals_are_no_other_word(tiny: Path) -> None:
    assert "did you mean 'he'?" in refused("plan", tiny, "--set", "policy=HE")


@pytest.mark.parametrize(("column", "help"), [
    ("split", "in spec.yaml: split: [0.6, 0.2, 0.2]"), ("a", "features are named in spec.yaml"),
    ("label", ""),
])  # fmt: skip
def test_a_missing_column_says_what_else_helps(
    column: str, help: str, tmp_path: Path, root: Path
) -> None:
    file = root / "site-0" / "nodes.csv"
    head, rest = file.read_text().split("\n", 1)
    file.write_text(f"{head.replace(column, 'other', 1) if column != 'a' else 'id,label,z,b,split'}"
                    f"\n{rest}")  # fmt: skip
    said = refused("run", written(tmp_path, document(root)), "--out", tmp_path / "run")
    assert f"column '{column}': the column is missing" in said and help in said
    assert ("features are named" in said) is (column == "a")


def test_a_step_that_cannot_be_right_is_said_first(tiny: Path) -> None:
    large = invoke("plan", tiny, "--set", "model.lr=900")
    assert "model.lr is 900: each step of adamw moves every weight by about so much" in words(
        large.stderr
    )
    assert "model.lr is" not in invoke("plan", tiny, "--set", "model.lr=0.1").stderr


# --- what a run says of its references ------------------------------------------------------------


def test_references_that_need_all_own_tables_say_so(tmp_path: Path, root: Path) -> None:
    run(tmp_path, root, evaluation={"references": ["centralised"]})
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["not_computed"] == {"centralised": "own tables"}


def test_a_run_says_where_its_keys_are(tmp_path: Path, root: Path) -> None:
    shown = invoke("run", written(tmp_path, document(root)), "--out", tmp_path / "run")
    (line,) = [line for line in shown.stdout.splitlines() if line.startswith("keys")]
    place = Path(re.search(r"(/\S+)", line)[1])  # type: ignore[index]
    assert place.is_dir() and list(place.glob("*.key")) and tmp_path / "run" not in place.parents
    assert "model forget" in line


# --- other commands -------------------------------------------------------------------------------


def test_the_folder_of_all_sites_is_no_site(tmp_path: Path, root: Path) -> None:
    run(tmp_path, root)
    for verb in ("predict", "evaluate"):
        said = refused(verb, tmp_path / "run", "--site", root)
        assert f"{root} is no site's folder: it holds those of all sites" in said
        assert f"--site {root}/site-0" in said and "write one" not in said
    (tmp_path / "p.csv").write_text("mine")
    site = root / "site-0"
    said = refused("predict", tmp_path / "run", "--site", site, "--out", tmp_path / "p.csv")
    assert "p.csv is there already" in said and "Errno" not in said


@pytest.mark.parametrize(("word", "meant"), [
    ("train", "did you mean 'run'?"), ("verify", "did you mean 'audit verify'?"),
    ("pln", "did you mean 'plan'?"), ("xyzzy", "known: approve, audit,"),
])  # fmt: skip
def test_an_unknown_command_says_which_was_meant(word: str, meant: str) -> None:
    said = refused(word, "config.yaml")
    assert f"There is no command {word!r}." in said and meant in said


def test_a_list_of_runs_says_what_ran(tmp_path: Path, tiny: Path) -> None:
    for name in ("fed_gcn", "fed_avg"):
        out = tmp_path / "runs" / name
        assert invoke("run", tiny, "--set", f"algorithm.name={name}", "--out", out).exit_code == 0
    shown = invoke("runs", "list", tmp_path / "runs", "--format", "json")
    told = {run["name"]: run["runs_as"] for run in json.loads(shown.stdout)["runs"]}
    assert told == {"fed_gcn": "FedAvg", "fed_avg": ""}
    assert "runs as FedAvg" in words(invoke("runs", "list", tmp_path / "runs").stdout)


def test_explain_names_every_attack_that_it_explains() -> None:
    said = refused("audit", "explain", "A99")
    first, last, alone = re.search(r"give A(\d\d) to A(\d\d), A(\d\d) or", said).groups()  # type: ignore[union-attr]
    named = {*range(int(first), int(last) + 1), int(alone)}
    assert named == {n for n in range(1, 100) if find(f"A{n:02}")}


# --- plug-ins -------------------------------------------------------------------------------------


def test_a_folder_is_no_plug_in(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    file = write(folder, "my_sum", MODEL)
    said = refused("plan", tiny, "--plugin", folder)
    assert f"{folder} is a folder, and no plug-in" in said and f"--plugin {file}" in said
    monkeypatch.chdir(tmp_path)
    said = refused("plan", tiny, "--plugin", "mine")
    assert "mine is a folder, and no plug-in" in said and "mine.py" not in said


def test_the_rule_on_imports_speaks_of_a_model_s_file(tmp_path: Path, tiny: Path) -> None:
    file = write(tmp_path, "my_sum", f"import pandas\n{MODEL}")
    said = refused("plan", tiny, "--plugin", file, "--set", "model.name=my_sum")
    assert "imports what a model has no use for" in said and "pandas" in said
    assert "an algorithm" not in said


RAISES = '    raise ValueError("cannot build")\n    return MySum('


@pytest.mark.parametrize(("old", "new", "told"), [
    ("    return MySum(", RAISES,
     ("The model of a plug-in cannot be built: ValueError: cannot build",
      'my_sum.py, line', 'raise ValueError("cannot build")', "mend the plug-in")),
    ("def build(features, classes, hidden, layers, dropout):", "def build(features, classes):",
     ("build takes (features, classes), and is called with (features, classes, hidden, layers",
      "own-algorithm.md")),
    ("    return MySum(", "    MySum(",
     ("Build of the model 'my_sum' returns NoneType, and no torch module",)),
])  # fmt: skip
@pytest.mark.parametrize("command", ["plan", "check"])
def test_what_is_wrong_with_build_is_said(
    command: str, old: str, new: str, told: tuple[str, ...], tmp_path: Path, tiny: Path
) -> None:
    file = write(tmp_path, "my_sum", changed((old, new), text=MODEL))
    if command == "plan":
        said = refused("plan", tiny, "--plugin", file, "--set", "model.name=my_sum")
    else:
        said = refused("check", file)
    for part in told:
        assert part in said
