"""Whatever test leaves a process behind fails by name; and only for its own processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from secure_fgl.isolation.sandbox import _KEPT
from tests.secure_fgl.cli_tools import ROOT
from tests.sites import left

ORPHAN = "import os, sys, time; os.fork() and os._exit(0); os.setsid(); print(os.getpid()); \
sys.stdout.flush(); os.close(1); time.sleep(600)"


@pytest.fixture
def ends() -> Iterator[list[int]]:
    """Processes that this test is to end."""
    found: list[int] = []
    yield found
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def orphan(folder: Path) -> int:
    """Start a process that is nobody's child, in a session of its own, as an engine's job is."""
    told = subprocess.run(
        [sys.executable, "-S", "-c", ORPHAN], check=True, timeout=60,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={"PATH": f"/bin:{folder / 'none'}"},
    )  # fmt: skip
    return int(told.stdout)


def test_what_was_started_with_a_path_of_a_run_is_found_wherever_it_went(
    tmp_path: Path, ends: list[int]
) -> None:
    mine, another = tmp_path / "run-1", tmp_path / "run-12"
    before = left.listed()
    ends.append(theirs := orphan(another))
    assert left.left(before, mine) == {}  # another run's, whose folder only begins like it
    ends.append(ours := orphan(mine))
    assert [*left.left(before, mine)] == [ours] == left.processes_of(mine)
    assert "sleep(600)" in left.left(before, mine)[ours]
    assert left.left(left.listed(), mine) == {}  # what was there before is nobody's fault
    assert left.processes_of(another) == [theirs]


def test_what_was_forked_off_is_found_though_it_has_its_parent_s_environment(
    tmp_path: Path,
) -> None:
    before, (end, hold) = left.listed(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hold)
        os.read(end, 1)
        os._exit(0)
    os.close(end)
    assert [*left.left(before, tmp_path)] == [child]
    os.close(hold)
    left.check_nothing_left(before, tmp_path)  # it ends in time
    os.waitpid(child, 0)


def test_what_does_not_end_is_named_and_ended(tmp_path: Path) -> None:
    before, ours = left.listed(), orphan(tmp_path)
    with pytest.raises(AssertionError, match=rf"processes are left: {ours} \(.*sleep\(600\)"):
        left.check_nothing_left(before, tmp_path, seconds=0.1)
    left.check_nothing_left(before, tmp_path)


def test_every_test_of_this_folder_is_looked_at(request: pytest.FixtureRequest) -> None:
    looks = {"no_test_leaves_a_process", "no_module_leaves_a_process"}
    assert looks <= {*request.fixturenames}
    folder = request.getfixturevalue("folder_of_this_run")
    kept = [os.environ[name] for name in _KEPT if name in os.environ]  # of a process of answers
    assert any(str(folder / "none") in value for value in kept)


LEAVING = f"""
import subprocess, sys
import pytest

def start():
    mute = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.run([sys.executable, "-S", "-c", {ORPHAN!r}], check=True, **mute)

@pytest.fixture(scope="module")
def shared():
    start()

def test_that_ends_what_it_starts(): subprocess.run(["true"], check=True)
def test_that_leaves_one(): start()
def test_after_it(): pass
def test_whose_module_leaves_one(shared): pass
"""


def test_a_test_that_leaves_a_process_fails_by_name(tmp_path: Path) -> None:
    (tmp_path / "test_leaving.py").write_text(LEAVING)
    (tmp_path / "conftest.py").write_text(
        "from tests.sites import left\n"
        "left.GRACE_SECONDS = 0.1\n"
        "from tests.sites.left import folder_of_this_run\n"
        "from tests.sites.left import no_module_leaves_a_process, no_test_leaves_a_process\n"
    )
    alone = {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    told = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-c", os.devnull, str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), **alone}, cwd=tmp_path,
    )  # fmt: skip
    failed = [line for line in told.stdout.splitlines() if line.startswith("ERROR ")]
    assert len(failed) == 2, told.stdout
    assert "::test_that_leaves_one" in failed[0] and "::test_whose_module" in failed[1]
    assert "4 passed, 2 errors" in told.stdout and "processes are left" in told.stdout
