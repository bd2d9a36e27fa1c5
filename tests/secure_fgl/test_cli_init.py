"""`secure-fgl init`: what it writes can be planned at once, and nothing is ever replaced."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest
import yaml

import secure_fgl
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.config import Config
from secure_fgl.data.own import load_spec
from secure_fgl.errors import UsageError
from tests.secure_fgl.cli_tools import ROOT, invoke

TASKS = ("node", "graph", "rating")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("task", TASKS)
def test_the_plan_is_there_before_any_data(task: str) -> None:
    made = invoke("init", "pilot", "--task", task)
    assert (made.exit_code, made.stdout) == (0, "")
    assert "secure-fgl plan pilot/config.yaml" in made.stderr
    shown = invoke("plan", "pilot/config.yaml", "--format", "json")
    assert shown.exit_code == 0, shown.stderr
    plan = json.loads(shown.stdout)
    spec = load_spec("pilot/data").data_spec(5)
    assert plan["data"]["task"] == task == spec.task
    assert plan["data"]["name"] == spec.name == "pilot"
    assert len(plan["clients"]) == 5
    assert plan["policy"] == "own"


@pytest.mark.parametrize("pilot", [False, True])
def test_machines_are_told_which_files_were_written(pilot: bool) -> None:
    made = invoke("init", "pilot", "--format", "json", *(["--pilot"] if pilot else []))
    told = json.loads(made.stdout)
    written = sorted(str(path) for path in Path("pilot").rglob("*") if path.is_file())
    assert made.exit_code == 0 and told["folder"] == "pilot"
    assert sorted(told["files"]) == written and (len(written) > 4) is pilot
    again = invoke("init", "pilot", "--format", "json")
    assert (again.exit_code, again.stdout) == (2, "") and "not an empty folder" in again.stderr


def test_nodes_are_the_default() -> None:
    assert invoke("init", "pilot").exit_code == 0
    assert load_spec("pilot/data").task == "node"


@pytest.mark.parametrize("task", TASKS)
def test_the_files_are_commented_and_valid(task: str) -> None:
    invoke("init", "pilot", "--task", task)
    written = sorted(str(path) for path in Path("pilot").rglob("*") if path.is_file())
    expected = ["config.yaml", "data/README.txt", "data/spec.yaml", "policy.yaml"]
    assert written == [f"pilot/{name}" for name in expected]
    for name in written:
        text = Path(name).read_text("utf-8")
        assert "$" not in text
        assert max(map(len, text.splitlines())) <= 100
        if name.endswith(".yaml"):
            assert text.startswith("# ")
            assert yaml.safe_load(text)
    config = Config.load("pilot/config.yaml")
    assert (config.data.name, config.data.root) == ("own", "pilot/data")
    # The same protection as the preset, spelt out.
    policy = PrivacyPolicy.load(config.policy)
    preset = PrivacyPolicy.preset("pilot").document()
    assert policy.document() == {**preset, "name": "own"}
    layout = Path("pilot/data/README.txt").read_text("utf-8")
    stem = {"node": "nodes.csv", "graph": "molecules.csv", "rating": "ratings.csv"}[task]
    assert stem in layout


def test_a_folder_with_an_awkward_name() -> None:
    name = 'my "pilot": #1'
    assert invoke("init", name).exit_code == 0
    assert Config.load(f"{name}/config.yaml").data.root == f"{name}/data"
    assert invoke("plan", f"{name}/config.yaml").exit_code == 0


def test_an_empty_folder_is_used() -> None:
    Path("pilot").mkdir()
    assert invoke("init", "pilot").exit_code == 0
    assert Path("pilot/config.yaml").is_file()


@pytest.mark.parametrize("kind", ["folder", "hidden", "file", "again"])
def test_nothing_is_replaced(kind: str) -> None:
    if kind == "file":
        Path("pilot").write_text("mine")
    elif kind == "again":
        invoke("init", "pilot")
    else:
        Path("pilot").mkdir()
        (Path("pilot") / (".mine" if kind == "hidden" else "mine")).write_text("mine")
    before = {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    refused = invoke("init", "pilot")
    assert refused.exit_code == 2
    assert "not an empty folder" in refused.stderr
    assert {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()} == before


def test_a_file_that_comes_up_meanwhile_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secure_fgl.cli.init._check_empty", lambda folder: None)
    Path("pilot").mkdir()
    Path("pilot/config.yaml").write_text("mine")
    refused = invoke("init", "pilot")
    assert (refused.exit_code, Path("pilot/config.yaml").read_text()) == (2, "mine")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named() -> None:
    Path("locked").mkdir(mode=0o500)
    refused = invoke("init", "locked/pilot")
    assert refused.exit_code == 2
    assert "cannot be written" in refused.stderr


def test_below_a_file_is_no_place() -> None:
    Path("file").write_text("x")
    refused = invoke("init", "file/pilot")
    assert refused.exit_code == 2
    assert "Traceback" not in refused.stderr


def test_an_unknown_task_is_a_usage_error() -> None:
    refused = invoke("init", "pilot", "--task", "edge")
    assert refused.exit_code == 2
    assert not Path("pilot").exists()


def test_help_shows_an_example() -> None:
    shown = invoke("init", "--help")
    assert "secure-fgl init" in shown.stdout.partition("Example")[2]


@pytest.mark.parametrize(
    ("name", "files"), [("banks", ["banks"]), ("fed_gcn_cora", ["fed_gcn_cora", "rows_policy"])]
)
def test_an_example_comes_with_the_policy_that_it_names(name: str, files: list[str]) -> None:
    made = invoke("init", "--example", name, "--format", "json")
    assert made.exit_code == 0, made.stderr
    written = [f"examples/{stem}.yaml" for stem in files]
    assert json.loads(made.stdout)["files"] == written
    for path in written:
        assert Path(path).read_bytes() == (ROOT / path).read_bytes()
    assert invoke("plan", written[0]).exit_code == 0
    assert invoke("init", "--example", name).exit_code == 2  # nothing is replaced
    wrong = invoke("init", "--example", "bank")
    assert wrong.exit_code == 2 and "did you mean 'banks'?" in wrong.stderr


def test_a_system_without_file_locks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    shown = invoke("init", "pilot")
    assert (
        shown.exit_code == 2 and "needs file locks (fcntl), which Windows has not" in shown.stderr
    )
    with pytest.raises(UsageError, match="does not run on this system"):
        secure_fgl.__getattr__("Federation")


def test_a_policy_between_organisations_keeps_cohorts_fixed_and_writes_every_setting_out() -> None:
    """Four sites are as many as a total needs: a round in which one is away is lost anyway."""
    invoke("init", "pilot", "--pilot")
    policy = PrivacyPolicy.load("pilot/policy.yaml")
    clients = Config.load("pilot/config.yaml").data.partition.called
    assert (policy.cohort_changes, len(clients)) == ("fixed", policy.smallest_cohort)
    text = Path("pilot/policy.yaml").read_text("utf-8")
    written = yaml.safe_load(text)
    assert written.keys() == PrivacyPolicy.model_fields.keys()
    for word in ("killed", "lot", "clusters", "gcfl", "reads its update"):
        assert word in text  # what each rule means is said where it is chosen
