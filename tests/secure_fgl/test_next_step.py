"""`secure-fgl site` without a verb: the parties here, their runs, and what is next."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from secure_fgl.sites.shown import next_steps, parties_here
from secure_fgl.sites.status import State, Status, StatusFile
from secure_fgl.sites.stopping import go_on
from secure_fgl.store.files import open_plain
from tests.secure_fgl.cli_tools import invoke

RUN, OTHER = "ab" * 16, "cd" * 16


@pytest.fixture
def party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SECURE_FGL_PARTY", raising=False)
    made = invoke("site", "new", "parties/office", "--name", "aggregator",
                  "--organisation", "Office", "--role", "aggregator")  # fmt: skip
    assert made.exit_code == 0, made.stderr
    return Path("parties/office")


def joined(party: Path, run: str = RUN) -> StatusFile:
    """Make the folder of a run in which a session began."""
    place = party / "runs" / run
    place.mkdir(parents=True)
    return StatusFile(place, Status("aggregator", "aggregator", run, 30, round=4))


def line(party: Path) -> str:
    """Return the line of its only run."""
    _, shown = next_steps(party, time.time())
    return shown


@pytest.fixture
def at_work(party: Path) -> Iterator[StatusFile]:
    """A run whose lock another process, this one, holds."""
    import fcntl

    status = joined(party)
    file = open_plain(party / "runs" / RUN / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_EX)
    yield status
    os.close(file)


def test_a_new_party_gives_its_facts(party: Path) -> None:
    shown = invoke("site")
    assert shown.exit_code == 0, shown.stderr
    assert "parties/office: aggregator (aggregator), Office" in shown.stdout
    assert "give parties/office/aggregator.facts.json to" in shown.stdout


def test_a_run_that_was_joined_is_checked_and_started(party: Path) -> None:
    (party / "runs" / RUN).mkdir(parents=True)
    assert "site check parties/office, then secure-fgl site start parties/office" in line(party)


def test_a_running_office_shows_whom_it_waits_for_and_since_when(
    party: Path, at_work: StatusFile
) -> None:
    at_work.status.awaited = {"hospital-east": time.time() - 40}
    at_work.status.away = {"hospital-west": time.time() - 240}
    at_work._reach(State.RUNNING)
    assert (
        "running, round 4 of 30; waits for hospital-east (40 s); away: hospital-west (4 min)"
        in (line(party))
    )
    assert "Next" not in line(party)


def test_a_run_without_a_process_is_started_again(party: Path) -> None:
    joined(party)._reach(State.RUNNING)
    assert "no process at work. Next: secure-fgl site start parties/office" in line(party)


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (State.OVER, "site hand-over parties/office --out aggregator.zip"),
        (State.REFUSED, "see parties/office/site.log"),
        (State.STOPPED, "see parties/office/site.log"),
    ],
)
def test_a_run_that_ended_says_what_is_left_to_do(party: Path, state: State, shown: str) -> None:
    joined(party)._reach(state)
    assert shown in line(party)


def test_a_stopped_site_goes_on_with_again_alone(party: Path) -> None:
    joined(party)._reach(State.OVER)
    (party / "runs" / RUN / "stopped").touch()
    assert line(party).endswith("site start parties/office --again")
    go_on(party / "runs" / RUN)
    assert "hand-over" in line(party)  # the control


def test_of_several_runs_each_is_named(party: Path) -> None:
    joined(party)
    joined(party, OTHER)._reach(State.OVER)
    _, first, second = next_steps(party, time.time())
    assert f"--run {RUN}" in first and f"--run {OTHER}" in second


def test_a_spoilt_status_or_facts_file_ends_nothing(party: Path) -> None:
    joined(party)
    (party / "runs" / RUN / "status.json").write_text("{")
    (party / "aggregator.facts.json").write_text("no facts")
    first, second = next_steps(party, time.time())
    assert "cannot be read" in first and "is not a status of ours" in second


def test_parties_are_found_here_below_and_by_the_variable(
    party: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "north"
    shutil.copytree(party, elsewhere)
    assert parties_here() == [party]
    monkeypatch.setenv("SECURE_FGL_PARTY", str(elsewhere))
    assert parties_here() == [party, elsewhere]
    monkeypatch.chdir("parties")
    assert parties_here() == [Path("office"), elsewhere]
    monkeypatch.chdir("office")
    assert parties_here() == [Path(), elsewhere]


def test_without_a_party_the_help_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SECURE_FGL_PARTY", raising=False)
    shown = invoke("site")
    assert shown.exit_code == 0 and "hand-over" in shown.stdout and "Usage" in shown.stdout
