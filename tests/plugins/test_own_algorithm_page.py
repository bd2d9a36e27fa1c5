"""docs/own-algorithm.md does what it says: its files are written, and its commands run."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from protocols.plan.plan import Plan
from secure_fgl.checking.laws import UNSEEN
from secure_fgl.federation import Federation
from secure_fgl.plugins.in_use import GROUPS
from secure_fgl.store.finished_run import Run
from tests.plugins.page import DATA, FEDPROX, MODEL, PAGE, ROOT, blocks, config, write
from tests.secure_fgl.cli_tools import invoke

TAKEN = ("--plugin my_sum.py --set model.name=my_sum", "--plugin my_ring.py --set data.name=ring")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name, text in (("my_fedprox", FEDPROX), ("my_sum", MODEL), ("my_ring", DATA)):
        assert f"`{name}.py`" in PAGE
        write(tmp_path, name, text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_algorithm_has_forty_lines() -> None:
    assert len(FEDPROX.splitlines()) <= 40
    assert max(map(len, FEDPROX.splitlines())) <= 100


def keeps_every_law(shown: str) -> None:
    assert max(map(len, shown.splitlines())) <= 80
    assert "FAIL" not in shown and "NOT CHECKED" not in shown
    assert "Update" in shown and "only the cohort's total" in shown
    assert shown.index("What this check cannot see") > shown.index("isolation")
    for name in UNSEEN:
        assert name in shown


def test_check_plan_run_and_audit(folder: Path) -> None:
    """The commands of the page, in their order; the run is shortened, and nothing else."""
    (commands,) = blocks("sh")
    short = ("--set", "algorithm.rounds=2")
    more = {"check": ("--strict",), "plan": short, "run": short}
    for line in commands.strip().splitlines():
        words = shlex.split(line)[1:]
        shown = invoke(*words, *more.get(words[0], ()))
        assert shown.exit_code == 0, (line, shown.output)
        if words[0] == "check":
            keeps_every_law(shown.stdout)
    plan = Plan.model_validate_json((folder / "plan.json").read_text())
    assert list(plan.plugins) == ["plugin.algorithm.my_fedprox"]
    assert Run(folder / "runs" / "mine").result["algorithm"] == "my_fedprox"


@pytest.mark.parametrize("words", TAKEN)
def test_the_model_and_the_data_are_taken_as_the_page_says(words: str, folder: Path) -> None:
    assert words in PAGE
    more = ["--set", "data.partition.name=iid_nodes"] if "ring" in words else []
    shown = invoke("plan", "examples/banks.yaml", *shlex.split(words), *more)
    assert shown.exit_code == 0, shown.output


def test_options_and_python_are_as_the_page_says(folder: Path) -> None:
    assert 'Federation(..., algorithm="my_fedprox", plugins=["my_fedprox.py"])' in PAGE
    federation = Federation("synthetic_banks", algorithm="my_fedprox", plugins=["my_fedprox.py"])
    assert federation.build()[1].name == "my_fedprox"
    assert "`--set algorithm.options.my_fedprox.mu=0.1`" in PAGE
    named = {"name": "my_fedprox", "options": {"my_fedprox": {"mu": 0.1}}}
    assert Federation(config=config(algorithm=named, plugins=["my_fedprox.py"])).plan()


def test_the_page_names_every_group() -> None:
    for group in GROUPS:
        assert f"`{group}`" in PAGE
