"""Tutorials and how-to are walked through: files are written, programs and commands are run.

A block that names a path is written there; one of `sh` or `python` is run; a command's comment may
say its exit code. Others are looked at by people alone. All pages of a chain share one folder.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.secure_fgl.cli_tools import ROOT, invoke

BLOCK = re.compile(r"^```(\w+)(?: ([\w./-]+))?\n(.*?)^```$", flags=re.S | re.M)
EXIT = re.compile(r"# exit (\d+)")
TUTORIALS = (
    *("first-run", "own-csv", "choose-a-policy", "personalise", "recommend", "read-a-report"),
)
HOW_TO = (
    *("keep-a-budget", "survive-drop-outs", "resume-a-run", "audit-a-bundle", "waive-a-finding"),
    *("follow-a-run", "install", "profile-a-run"),
)
COMPARED = "compare-policies"
SMALL = """
algorithm: {name: fed_avg, rounds: 2, epochs: 1}
model: {name: gcn, hidden: 4}
data:
  name: synthetic_banks
  options: {customers: 20, transactions: 60}
  partition: {name: by_owner, clients: 5}
seed: 1
"""


def command(line: str) -> str:
    """Run one line of a block; return what it printed."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["cp", "-r"]:
        shutil.copytree(words[2], words[3])
        return ""
    assert words[0] == "secure-fgl", line
    found, done = EXIT.search(line), invoke(*words[1:])
    assert done.exit_code == (int(found[1]) if found else 0), (line, done.output)
    return str(done.output)


def walk(page: str) -> str:
    """Do what a page says, in this folder; return what its commands printed."""
    text, shown = (ROOT / "docs" / f"{page}.md").read_text("utf-8"), []
    for language, path, body in BLOCK.findall(text):
        if path:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(body, "utf-8")
        elif language == "python":
            exec(compile(body, f"docs/{page}.md", "exec"), {"__name__": page})
        elif language == "sh":
            shown += [command(line) for line in body.strip().splitlines()]
    return "".join(shown)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for programs that a page starts
    return tmp_path


def test_the_tutorials_do_what_they_say(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown, seconds = {}, {}
    for page in TUTORIALS:
        begun = time.monotonic()
        shown[page] = walk(f"tutorials/{page}")
        seconds[page] = time.monotonic() - begun
    assert max(seconds.values()) < 600, seconds  # ten minutes each, as the README says
    printed = capsys.readouterr().out
    first = shown["first-run"]
    for words in ("train.up.SUM", "local only", "self-consistent only", "plan_vs_ledger"):
        assert words in first
    assert "north-60 " in printed  # a record without a label is predicted
    assert "its own" in printed and "shared" in printed
    assert "are what customer 3 may like best" in printed
    assert "epsilon <= 8.0" in shown["choose-a-policy"]
    assert "INCONCLUSIVE" in shown["read-a-report"]
    assert (folder / "dpia-draft.md").is_file()


def test_the_recipes_do_what_they_say(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    walk("tutorials/first-run")
    shown = {page: walk(f"how-to/{page}") for page in HOW_TO}
    assert "1 client vanished" in capsys.readouterr().out
    assert "NOT FALSIFIED" in shown["keep-a-budget"]
    assert "Not signed" in shown["audit-a-bundle"]
    assert (folder / "runs/first/waivers.json").is_file()


def test_policies_are_compared_as_the_recipe_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def here(program: list[str], **named: object) -> None:
        assert program[:3] == [sys.executable, "-m", "secure_fgl"] and named["check"]
        done = invoke(*program[3:])
        assert done.exit_code == 0, (program, done.output)

    monkeypatch.setattr(subprocess, "run", here)  # each program would load PyTorch anew
    Path("first.yaml").write_text(SMALL, "utf-8")
    walk(f"how-to/{COMPARED}")
    *lines, chosen = capsys.readouterr().out.strip().splitlines()
    assert [line.split(":")[0] for line in lines] == ["today", "grid of 6 bits", "one release"]
    assert all("validation 0." in line and "above prior at most" in line for line in lines)
    assert chosen == "chosen: none passes"  # five banks decide nothing
    assert not list(Path("runs").glob("tried-*"))


def test_every_page_of_both_is_walked() -> None:
    for name, pages in (("tutorials", TUTORIALS), ("how-to", HOW_TO)):
        there = {file.stem for file in (ROOT / "docs" / name).glob("*.md")} - {"README"}
        assert there - {COMPARED} == set(pages)


def test_a_wrong_page_is_found(folder: Path) -> None:
    with pytest.raises(AssertionError):
        command("secure-fgl list nothing")
    with pytest.raises(AssertionError):
        command("secure-fgl list policies  # exit 3")
    with pytest.raises(AssertionError):
        command("rm -r runs")
