"""A new role is one file: a second witness is dropped into a copy of the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.toys.dropping import dropped, laws, new_paths, python

LAWS = "second_witness_laws.py"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toys = {"second_witness.py": "protocols/roles/second_witness.py"}
    return dropped(tmp_path_factory.mktemp("dropped") / "tree", toys)


def test_a_new_role_is_one_file(copy: Path) -> None:
    assert new_paths(copy) == ["protocols/roles/second_witness.py"]


def test_it_is_planned_run_recorded_verified_and_resumed(copy: Path) -> None:
    assert not laws(copy, LAWS, "not sites and not attacks")


@pytest.mark.long
def test_it_is_attacked_and_runs_between_sites(copy: Path) -> None:
    assert not laws(copy, LAWS, "sites or attacks")


@pytest.mark.long  # in the quick suite they are held against the toy of test_maximum.py
def test_the_house_rules_hold_for_it(copy: Path) -> None:
    done = python(copy, "-m", "scripts.house_rules")
    assert done.returncode == 0, done.stdout
