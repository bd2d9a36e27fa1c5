"""What was given and has no part in a run: said before the plan, by `run` and by `plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from tests.plugins.page import MODEL, write
from tests.secure_fgl.cli_tools import CONFIG, invoke


def first_words(*words: object) -> str:
    """Return what a command says on stderr before the plan."""
    shown = invoke(*words)
    assert shown.exit_code == 0, shown.output
    return " ".join(shown.stderr.split()).partition("plan fed_avg, form")[0]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    return file


def test_a_plug_in_that_no_setting_names(tiny: Path, tmp_path: Path) -> None:
    file, model = write(tmp_path), write(tmp_path, "my_sum", MODEL)
    said = "The plug-in my_fedprox is given and not used: algorithm.name is fed_avg"
    for words in (("run", tiny, "--out", tmp_path / "run"), ("plan", tiny)):
        told = first_words(*words, "--plugin", file, "--plugin", model)
        assert f"{said}; to use it: --set algorithm.name=my_fedprox." in told
        assert "my_sum is given and not used: model.name is gcn" in told
    report = " ".join((tmp_path / "run" / "report" / "report.md").read_text("utf-8").split())
    assert report.count(", given and not used") == 2
    plan = invoke("plan", tiny, "--plugin", file).stdout
    assert "the first model may be one" not in " ".join(plan.split())
    used = invoke("plan", tiny, "--plugin", file, "--set", "algorithm.name=my_fedprox")
    assert "given and not used" not in used.output
    assert "the first model may be one" in " ".join(used.stdout.split())  # control


def test_options_of_another_algorithm(tiny: Path) -> None:
    other = ("--set", "algorithm.options.fed_prox.mu=0.1")
    said = "Options of fed_prox are given and not used: the algorithm is fed_avg."
    assert said in first_words("plan", tiny, *other)
    shown = invoke("plan", tiny, *other, "--set", "algorithm.name=fed_prox")
    assert shown.exit_code == 0 and "not used" not in shown.output


@pytest.mark.parametrize(("asked", "clients", "whole"), [(3, 5, True), (5, 12, False)])
def test_cohorts_that_fit_only_once_are_all_clients(asked: int, clients: int, whole: bool) -> None:
    document: dict[str, Any] = subject.document("fed_per_gnn", "unsafe_plaintext")
    document["algorithm"]["options"] = {"fed_per_gnn": {"drawn": asked}}
    data = document["data"]
    document["data"] = {**data, "options": {**data["options"], "users": clients},
                        "partition": {**data["partition"], "clients": clients}}  # fmt: skip
    drawn = Federation.from_config(Config.parse(document)).plan().drawn
    assert drawn is not None
    all_of_them = f"fit only once into {clients}, so every round asks all of them"
    assert (all_of_them in drawn.words) is whole
