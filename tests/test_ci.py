"""`make`, `.ci/run` and the rule that real data which is there is also tested on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts import freeze, package

ROOT = Path(__file__).resolve().parent.parent


def run(
    *command: str | Path, cwd: Path, **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """Run a command; `NAME=None` takes a variable out of the environment."""
    merged = {**os.environ, **environment}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={name: value for name, value in merged.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_setup_is_done_once_and_again_when_a_pin_changes(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".installed").touch()
    assert "pip" not in run("make", "-n", "setup", cwd=tmp_path).stdout
    os.utime(tmp_path / ".venv" / ".installed", (0, 0))
    installs = re.findall(r"pip .* install (.*)", run("make", "-n", "setup", cwd=tmp_path).stdout)
    torch = freeze.pinned((ROOT / "constraints.txt").read_text("utf-8"))["torch"]
    pinned = "--no-compile -c constraints.txt"
    assert installs == [f"{pinned} torch=={torch}", f"{pinned} -e '.[test]'"]


def test_the_demo_sets_up_without_what_tests_need_unless_it_is_there(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    def planned() -> str:
        return run("make", "-n", "demo", cwd=tmp_path).stdout

    assert "-e '.[evaluate]'\n" in planned() and "[test]" not in planned()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".bare").touch()
    assert "pip" not in planned() and "secure-fgl run examples/lenders.yaml" in planned()
    (tmp_path / ".venv" / ".installed").touch()
    assert "pip" not in planned()
    os.utime(tmp_path / ".venv" / ".installed", (0, 0))  # a pin changed since
    assert "[test]" in planned()


def test_wheels_that_differ_are_told_apart(tmp_path: Path) -> None:
    for name, files in (("a", {"x": "1", "y": "2"}), ("b", {"x": "1", "y": "3", "z": ""})):
        with zipfile.ZipFile(tmp_path / name, "w") as packed:
            for file, content in files.items():
                packed.writestr(file, content)
    assert package.same(tmp_path / "a", tmp_path / "b") == ["y", "z"]
    assert package.same(tmp_path / "a", tmp_path / "a") == []


@pytest.mark.parametrize(
    ("there", "fails"), [(True, "test"), (False, "package"), (True, "setup"), (False, "")]
)
def test_ci_runs_make_test_on_the_data_that_is_there(
    tmp_path: Path, there: bool, fails: str
) -> None:
    """The package is built beside the tests; whichever fails, so does the whole."""
    data, tools, checkout = tmp_path / "shared" / "data", tmp_path / "tools", tmp_path / "checkout"
    (checkout / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", checkout / ".ci")
    tools.mkdir()
    make = tools / "make"
    said = 'echo "$*|$PWD|$SECURE_FGL_DATA|$CI_REQUIRE_REAL_DATA"'
    make.write_text(f'#!/bin/sh\n{said}\n[ "$1" != "{fails}" ] || exit 7\n')
    make.chmod(0o755)
    if there:
        data.mkdir(parents=True)
    result = run(
        checkout / ".ci" / "run",
        cwd=tmp_path,
        PATH=f"{tools}{os.pathsep}{os.environ['PATH']}",
        SECURE_FGL_DATA=None,
        CI_REQUIRE_REAL_DATA=None,
    )
    found = f"{data}|1" if there else "|"
    first, *beside = result.stdout.splitlines()
    targets = [] if fails == "setup" else ["package", "test"]
    assert first == f"setup|{checkout}|{found}"
    assert sorted(beside) == [f"{target}|{checkout}|{found}" for target in targets]
    assert result.returncode == (7 if fails else 0)


TOOL = """#!/bin/sh
said="$(basename "$0") $*"
echo "$said" >> called
case "$said" in *"$FAILS"*) exit 1;; esac
"""
PARTS = (
    *("ruff check", "ruff format", "mypy", "lint-imports", "scripts.house_rules", "pytest -n 2"),
)


@pytest.mark.parametrize("fails", ["nothing", *PARTS])
def test_make_test_does_all_of_its_parts_and_fails_with_each(tmp_path: Path, fails: str) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name in ("python", "ruff", "mypy", "lint-imports"):
        (tools / name).write_text(TOOL, "utf-8")
        (tools / name).chmod(0o755)
    (tmp_path / ".venv" / ".installed").touch()
    done = run("make", "test", cwd=tmp_path, FAILS=fails, MAKEFLAGS=None)
    assert (done.returncode == 0) is (fails == "nothing"), done.stdout + done.stderr
    called = (tmp_path / "called").read_text("utf-8")
    if fails.startswith("ruff"):
        assert "pytest" not in called  # of what is found at once tests need not tell
    elif fails != "lint-imports":  # the house rules come after it
        assert [part for part in PARTS if part not in called] == []
    planned = run("make", "-n", "test", cwd=tmp_path, MAKEFLAGS=None)
    assert "pytest -n 2" in planned.stdout
    assert (tmp_path / "called").read_text("utf-8") == called  # and runs none of it


XDIST = ("-n", "1")
NEEDING_DATA = """
import pytest

@pytest.mark.real_data
def test_marked():
    pytest.skip("no file")

def test_asking(data_root):
    assert data_root.is_dir()

@pytest.mark.real_data
@pytest.mark.xfail(reason="known", strict=True)
def test_expected_to_fail():
    raise AssertionError

def test_other():
    pytest.skip("has nothing to do with data")
"""


@pytest.mark.parametrize(
    ("workers", "required", "data", "outcome"),
    [
        pytest.param(*((), None, None, {"skipped": "3", "xfailed": "1"}), marks=pytest.mark.long),
        (XDIST, "1", None, {"failed": "1", "errors": "1", "skipped": "1", "xfailed": "1"}),
        ((), "1", ".", {"failed": "1", "passed": "1", "skipped": "1", "xfailed": "1"}),
        (XDIST, None, "no-such-folder", {"skipped": "3", "xfailed": "1"}),
    ],
)
def test_a_skip_for_want_of_data_that_is_there_is_a_failure(
    tmp_path: Path,
    workers: tuple[str, ...],
    required: str | None,
    data: str | None,
    outcome: dict[str, str],
) -> None:
    (tmp_path / "test_planted.py").write_text(NEEDING_DATA, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n", "utf-8")
    result = run(
        *(sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"),
        *workers,
        cwd=tmp_path,
        PYTHONPATH=str(ROOT),
        SECURE_FGL_DATA=data,
        CI_REQUIRE_REAL_DATA=required,
    )
    summary = result.stdout.splitlines()[-1]
    counts = {word: number for number, word in re.findall(r"(\d+) ([a-z]+)", summary)}
    counts = {word + "s" if word == "error" else word: n for word, n in counts.items()}
    assert counts == outcome, result.stdout
    assert (result.returncode != 0) == ("failed" in outcome)
    if required:
        assert "the data is here and must be used" in result.stdout
