"""Runs that lie in a folder: listed, compared, and deleted with their keys, the keys first."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from secure_fgl import Run, UsageError, past_runs
from secure_fgl.past_runs import differences, listed
from secure_fgl.store.files import Folder
from secure_fgl.store.state_store import default_folder
from tests.secure_fgl.cli_tools import config, invoke


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one finished run, whose keys lie in a folder of the test's own."""
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    (tmp_path / "runs").mkdir()
    done = invoke("run", config(tmp_path), "--out", tmp_path / "runs" / "first")
    assert done.exit_code == 0, done.stderr
    return tmp_path / "runs"


def keys(run: str) -> list[str]:
    """Kinds of keys that are there."""
    places = {"state": run, "captures": f"captures/{run}", "models": f"models/{run}"}
    return [kind for kind, place in places.items() if (default_folder() / place).exists()]


def refused(path: Path, **options: bool) -> UsageError:
    with pytest.raises(UsageError) as caught:
        past_runs.delete(path, **options)
    return caught.value


def test_runs_are_listed_compared_and_deleted_with_their_keys(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, name = runs / "first", Run(runs / "first").name
    # Listed: a damaged one is told of, and spoils no other.
    (runs / "empty").mkdir()
    shutil.copytree(first, runs / "second")
    shutil.copytree(first, runs / "spoilt")
    (runs / "spoilt/plan.json").write_text("{")
    (runs / "second/result.json").unlink()
    states = {run.name: run.state for run in listed(runs)}
    assert states == {"first": "finished", "second": "not finished", "spoilt": "cannot be read"}
    shown = invoke("runs", "list", runs, "--format", "json")
    (row,) = [run for run in json.loads(shown.stdout)["runs"] if run["name"] == "first"]
    assert row["algorithm"] == "fed_avg" and row["score"].startswith("test_accuracy 0.")
    # Compared: what was changed, and nothing else.
    shutil.copytree(first, tmp_path / "other")
    assert differences(Run(first), Run(tmp_path / "other")) == []
    text = (tmp_path / "other/config.yaml").read_text()
    (tmp_path / "other/config.yaml").write_text(text.replace("hidden: 8", "hidden: 9"))
    (told,) = differences(Run(first), Run(tmp_path / "other"))
    assert (told.what, told.name, told.first, told.second) == ("setting", "model.hidden", "8", "9")
    assert "model.hidden" in invoke("runs", "compare", first, tmp_path / "other").stdout

    # A copy, another's folder that names this run, and what is not over remove nothing.
    assert keys(name) == ["captures", "models"]
    shutil.copytree(first, runs / "copy")
    assert "not known to belong" in refused(runs / "copy").what
    (runs / "copy/notes.txt").write_text("mine")
    assert "notes.txt" in refused(runs / "copy").what
    (runs / "copy/notes.txt").unlink()
    for inside in ("report/notes.txt", "captured/client-1/a/b", "ledger/mine.xlsx", "models/x"):
        theirs = runs / "copy" / inside
        theirs.parent.mkdir(exist_ok=True)
        theirs.write_text("mine")
        assert "no run writes" in refused(runs / "copy").what and theirs.is_file(), inside
        theirs.unlink()
    (runs / "copy/captured/client-1/a").rmdir()
    (runs / "copy/report/report.md").unlink()
    (runs / "copy/report/report.md").symlink_to(first / "report/report.md")
    assert "report.md" in refused(runs / "copy").what
    (runs / "copy/report/report.md").unlink()
    assert "no result" in refused(runs / "second").what
    (runs / "link").symlink_to(first)
    assert "is a link" in refused(runs / "link").what
    assert keys(name) == ["captures", "models"] and (runs / "copy").is_dir()
    assert invoke("runs", "delete", first).exit_code == 2  # nobody to be asked
    assert first.is_dir()

    # Keys go first: where one stays, the folder stays too.
    order: list[str] = []
    remove = Folder.remove_tree

    def noted(self: Folder, leaf: str) -> None:
        order.append(f"{self.path.name}/{leaf}")
        if self.path.name != "captures":
            remove(self, leaf)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "remove_tree", noted)
        assert "could not be removed" in refused(first).what
    assert order == [f"captures/{name}"] and (first / "captured").is_dir()

    done = invoke("runs", "delete", first, "--yes", "--format", "json")
    assert json.loads(done.stdout)["keys"] == ["captures", "models"], done.stderr
    assert keys(name) == [] and not first.exists()
    # What is left of a copy opens no more, and goes without keys.
    assert past_runs.delete(runs / "copy").keys == ()
    assert past_runs.delete(runs / "second", unfinished=True).run == name


def test_a_party_of_a_run_between_organisations_is_sent_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    place = tmp_path / "party" / "runs" / ("a" * 32)
    side = place / "run"
    side.mkdir(parents=True)
    (tmp_path / "party" / "identity.json").write_text("{}")
    (place / "charter.json").write_text("{}")
    for name in ("plan.json", "roster.json"):
        (side / name).write_text('{"run": "%s"}' % ("a" * 32))
    for path in (tmp_path / "party", side):
        error = refused(path, unfinished=True)
        assert "site forget" in error.fix and side.is_dir()


def test_no_folder_is_a_mistake_and_an_empty_one_is_none(tmp_path: Path) -> None:
    assert invoke("runs", "list", tmp_path / "none").exit_code == 2
    assert "No run lies in" in invoke("runs", "list", tmp_path).stderr
