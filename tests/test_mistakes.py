"""docs/mistakes.md is acted out: every mistake is made, and its message is the page's."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner, Result

from secure_fgl.cli._shared.app import app

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "mistakes.md").read_text("utf-8")
OWN = (ROOT / "docs" / "own-data.md").read_text("utf-8")
BLOCK = re.compile(r"```(\w+)(?: ([\w./-]+)(?::(\d+))?)?\n(.*?)```", flags=re.S)
WANTED = (
    "A wrong column",
    "Too few sites",
    "A typo in the policy",
    "A missing extra",
    "Edges to unknown nodes",
    "NaN among the features",
    "An existing folder",
    "Plan drift",
    "A spent budget",
    "A wrong site folder",
)
SIMULATION = "SIMULATION: roles are not separated\n"


class Mistake(NamedTuple):
    """A section of the page: files as somebody left them, commands, what the last one answers."""

    title: str
    files: list[tuple[str, str, str]]  # path, number of a line or "", text
    commands: list[list[str]]
    message: str
    code: int


def _mistake(section: str) -> Mistake:
    title, _, body = section.partition("\n")
    files, commands, message = [], list[list[str]](), ""
    for language, path, line, text in BLOCK.findall(body):
        if path:
            files.append((path, line, text))
        elif language == "sh":
            commands = [shlex.split(one) for one in text.replace("\\\n", " ").splitlines()]
        elif language == "text":
            message = text
    found = re.search(r"^Exit code (\d+)\.$", body, flags=re.M)
    return Mistake(title, files, commands, message, int(found[1]) if found else -1)


MISTAKES = [_mistake(section) for section in re.split(r"^## ", PAGE, flags=re.M)[1:]]
NAMES = [mistake.title for mistake in MISTAKES]


def invoke(words: list[str]) -> Result:
    return CliRunner().invoke(app, words, prog_name="secure-fgl")


@pytest.fixture
def pilot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where own-data.md ends, seen in a terminal of 80 columns that knows no colours."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "dumb"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SECURE_FGL_BUDGETS", str(tmp_path / "budgets"))
    monkeypatch.delenv("SECURE_FGL_DATA", raising=False)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    assert invoke(["init", "pilot", "--task", "node"]).exit_code == 0
    for _, path, _, text in BLOCK.findall(OWN):
        if path:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, "utf-8")
    for line in re.findall(r"^(?:cp|sed) .*", OWN, flags=re.M):
        subprocess.run(shlex.split(line), check=True, timeout=60)
    return tmp_path


def leave_files(mistake: Mistake) -> None:
    for path, line, text in mistake.files:
        lines = Path(path).read_text("utf-8").splitlines(keepends=True) if line else []
        lines[int(line or 1) - 1 : int(line or 1)] = [text]
        Path(path).write_text("".join(lines), "utf-8")


def make(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> Result:
    """Do what a section says; return what its last command answered."""
    leave_files(mistake)
    for words in mistake.commands[:-1]:
        if words[0] == "secure-fgl":
            done = invoke(words[1:])
            assert done.exit_code == 0, done.stderr
        elif words[:3] == ["pip", "uninstall", "--yes"]:
            # To `import`, None is a package that is not installed.
            monkeypatch.setitem(sys.modules, words[3], None)
        else:
            subprocess.run(words, check=True, timeout=60)
    assert mistake.commands[-1][0] == "secure-fgl"
    return invoke(mistake.commands[-1][1:])


def message_of(mistake: Mistake, stderr: str) -> str:
    """What is printed behind the plan, which `run` shows before it reads data."""
    before, error, after = stderr.partition("Error: ")
    if before:
        words = mistake.commands[-1][1:]
        assert words[0] == "run"
        settings = [w for at, w in enumerate(words) if w == "--set" or words[at - 1] == "--set"]
        plan = invoke(["plan", words[1], *settings])
        label = "SYNTHETIC DATA\n" if "SYNTHETIC DATA" in plan.stdout else ""
        shown, _, settings_line = before.rpartition("Model settings: ")
        assert shown == SIMULATION + label + plan.stdout and settings_line.count("\n") == 1
    return "".join(f"{line.rstrip()}\n" for line in (error + after).splitlines())


def test_the_ten_of_the_first_hour_are_there_and_every_one_is_in_the_table() -> None:
    assert set(WANTED) <= set(NAMES) and len(set(NAMES)) == len(NAMES) >= 20
    rows = re.findall(r"^\| \[(.*?)\]\(#(.*?)\) \| (\d+) \|$", PAGE, flags=re.M)
    assert [(title, int(code)) for title, _, code in rows] == [(m.title, m.code) for m in MISTAKES]
    for title, anchor, _ in rows:
        assert anchor == re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))


@pytest.mark.usefixtures("pilot")
def test_without_a_mistake_the_pilot_runs() -> None:
    """The control: what the sections change is what is wrong."""
    few = ["--set", "data.partition.clients=4", "--set", "algorithm.rounds=1"]
    done = invoke(["run", "pilot/config.yaml", *few, "--out", "runs/a"])
    assert done.exit_code == 0, done.stderr


@pytest.mark.usefixtures("pilot")
@pytest.mark.parametrize("mistake", MISTAKES, ids=NAMES)
def test_a_mistake_is_answered_as_the_page_says(
    mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = make(mistake, monkeypatch)
    assert done.stdout == ""
    assert message_of(mistake, done.stderr) == mistake.message
    assert done.exit_code == mistake.code


@pytest.mark.parametrize("mistake", MISTAKES, ids=NAMES)
def test_a_message_is_one_fits_names_a_fix_and_quotes_no_data(mistake: Mistake) -> None:
    lines = mistake.message.splitlines()
    heads = [found[0] for line in lines if (found := re.match(r"Error|Why|What to do", line))]
    assert heads in (["Error", "What to do"], ["Error", "Why", "What to do"])
    assert lines[0].startswith("Error: ") and "Traceback" not in mistake.message
    assert len(lines) <= 8 and max(map(len, lines)) <= 80
    for path, _, text in mistake.files:
        cells = set(re.split(r"[,;\n]", text)) if path.endswith(".csv") else set()
        for cell in cells - {"", "id", "label", "age"}:
            assert not re.search(rf"(?<!\w){re.escape(cell)}(?!\w)", mistake.message), cell


def test_a_real_terminal_of_80_columns_shows_the_same(pilot: Path) -> None:
    """The other tests tell the printer that it prints on a terminal; here it does."""
    (mistake,) = [m for m in MISTAKES if m.title == "A wrong site folder"]
    ours, theirs = pty.openpty()
    environment = {
        **{"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        **{"TERM": "dumb", "HOME": str(pilot)},
    }
    command = [sys.executable, "-m", "secure_fgl", *mistake.commands[-1][1:]]
    done = subprocess.run(
        command, cwd=pilot, env=environment, stderr=theirs, stdout=subprocess.PIPE, timeout=120,
        check=False,
    )  # fmt: skip
    shown = os.read(ours, 65_536).decode().replace("\r\n", "\n")
    os.close(ours), os.close(theirs)
    assert (done.returncode, done.stdout) == (mistake.code, b"")
    assert "".join(f"{line.rstrip()}\n" for line in shown.splitlines()) == mistake.message
