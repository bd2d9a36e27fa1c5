"""The README is run: its Python block and all its commands, in a folder of their own."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from secure_fgl.cli._shared.app import app

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


def test_the_python_block_plans_runs_and_audits(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: what one of its own imports is tried with the commands below."""
    monkeypatch.chdir(folder)
    (code,) = [block for block in blocks("python") if block.startswith("from secure_fgl")]
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    shown = capsys.readouterr().out
    assert "only the cohort's total" in shown
    assert "self-consistent only" in shown
    assert (folder / "runs/readme/report/report.html").is_file()


def lines_of_commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.strip().splitlines()]


def invoke(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).parent / "secure-fgl")
    return subprocess.run(
        [program, *shlex.split(line, comments=True)[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def in_process(line: str) -> Done:
    """Do what `invoke` does without a new interpreter, which imports for three seconds."""
    found = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
    return Done(found.exit_code, found.stdout, found.stderr)


def test_the_command_blocks_do_what_their_comments_say(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order in which they stand: later blocks audit what earlier ones ran.

    The first `run` and the first `audit` are processes of their own.
    """
    monkeypatch.chdir(folder)
    begun = set()
    lines = [line for line in lines_of_commands() if line.startswith("secure-fgl ")]
    verbs = {" ".join(line.split()[1:3]) for line in lines if " audit " in line}
    asked = ("verify", "report", "account", "attack", "explain", "bundle", "diff", "export")
    assert verbs == {f"audit {verb}" for verb in asked}
    for line in lines:
        verb = line.split()[1]
        alone = verb in ("run", "audit") and verb not in begun
        done = invoke(line, folder) if alone else in_process(line)
        begun.add(verb)
        expected = 6 if "exit 6" in line else 0
        assert done.returncode == expected, (line, done.stderr)
        if "audit bundle" in line:
            assert "Not signed" in done.stdout + done.stderr
    report = json.loads((folder / "runs/demo/report/report.json").read_text())
    assert report["attacks"] and report["tried"]["used"]
    a_release_succeeds_once_what_is_open_is_accepted(folder)
    assert (folder / "runs/demo.zip").is_file()
    assert json.loads((folder / "runs/pia.json").read_text())


def a_release_succeeds_once_what_is_open_is_accepted(folder: Path) -> None:
    """The table's line, on the run of the blocks: 3, and 0 with each open question waived by name.

    A waiver that names another attack's question, or none at all, changes nothing.
    """
    (line,) = re.findall(r"`(secure-fgl audit release RUN --require [^`]*)`", README)
    line = line.replace("RUN", "runs/demo")
    before = in_process(f"{line} --format json")
    assert before.returncode == 3, before.stderr
    answers = json.loads(before.stdout)["attacks"]
    assert {one["id"] for one in answers} == {"A05", "A09"}
    rules = {"FAIL": "ATTACK", "INCONCLUSIVE": "INCONCLUSIVE", "NOT_TESTED": "NOT_TESTED"}
    entries = [
        {
            "rule": f"{rules[one['verdict']]}_{one['id']}", "payload": one["payload"],
            "item": one["what"], "owner": "M. Bloch", "reason": "generated data",
            "until": (datetime.now(UTC).date() + timedelta(days=30)).isoformat(),
        }
        for one in answers if one["verdict"] != "PASS"
    ]  # fmt: skip
    assert entries and not any(one["rule"].endswith("A09") for one in entries)
    for accepted, code in ((entries, 0), (entries[:-1], 3), ([], 3)):
        (folder / "accepted.json").write_text(json.dumps(accepted))
        done = in_process(f"{line} --waivers accepted.json")
        assert done.returncode == code, (accepted, done.stderr)


def test_the_other_commands_are_targets_of_make(tmp_path: Path) -> None:
    """They are looked at and not run: `make test` is what runs this test."""
    others = [line for line in lines_of_commands() if not line.startswith("secure-fgl ")]
    assert {line.split()[0] for line in others} == {"make"}
    demo = re.search(r"`make demo` runs `(.*?)`", README)
    assert demo is not None
    for line in others:
        words = shlex.split(line, comments=True)
        command = [words[0], "--no-print-directory", "-n", *words[1:]]  # not as a make within make
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
        if words[1:] == ["demo"]:
            assert done.stdout.rstrip().endswith(demo[1])


def test_the_command_for_real_data_reads_the_folder_that_it_names(
    folder: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    found = re.search(
        r"`(secure-fgl run \S+ --set data\.root=FOLDER)` reads `FOLDER/(.*?)`", README
    )
    assert found is not None and (data_root / found[2]).is_file()
    short = "--set algorithm.rounds=1 --set algorithm.epochs=1 --set evaluation.references=[]"
    for root, code in ((data_root, 0), (folder / "nothing", 2)):
        line = found[1].replace("FOLDER", shlex.quote(str(root)))
        done = in_process(f"{line} {short}")
        assert done.returncode == code, done.stderr


def test_every_local_link_leads_somewhere() -> None:
    for document in ROOT.glob("**/*.md"):
        if any(
            part.startswith(".") or part == "runs" for part in document.parts[len(ROOT.parts) :]
        ):
            continue
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text("utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), (document.name, target)


def test_its_pictures_are_told_in_words_and_have_colours_for_both_schemes() -> None:
    named = re.findall(r"!\[([^\]]+)\]\((docs/pictures/[^)]+\.svg)\)", README)
    there = {file.relative_to(ROOT).as_posix() for file in (ROOT / "docs/pictures").iterdir()}
    assert {path for _, path in named} == there and all(len(words) > 20 for words, _ in named)
    for path in there:
        picture = ElementTree.parse(ROOT / path).getroot()
        ids = {e.get("id"): (e.text or "") for e in picture if e.get("id")}
        labels = (picture.get("aria-labelledby") or "").split()
        assert picture.get("role") == "img" and len(labels) == 2
        assert all(len(ids[label]) > 20 for label in labels)
        text = (ROOT / path).read_text("utf-8")
        light, _, dark = text.partition("@media (prefers-color-scheme: dark)")
        used = set(re.findall(r"var\((--\w+)\)", text))
        assert used <= set(re.findall(r"(--\w+):", light)) & set(re.findall(r"(--\w+):", dark))
        assert "script" not in text and text.count("http") == 1  # the name of the format


def test_what_the_readme_counts_is_there() -> None:
    from secure_fgl.catalogue import algorithm_names
    from secure_fgl.data import dataset_names, partition_names, published_shape

    table = dict(re.findall(r"^\| (algorithms|data) \| (.*) \|$", README, flags=re.M))
    assert set(re.findall(r"`(\w+)`", table["algorithms"])) == set(algorithm_names())
    mixtures = {name for name in dataset_names() if name.startswith(("pyg/", "tu_"))}
    made = {name for name in dataset_names() if name.startswith("synthetic_")}
    published = set(dataset_names()) - mixtures - made
    assert f"{len(published)} published sets" in table["data"]
    assert made == set(re.findall(r"`(synthetic_\w+)`", table["data"]))
    assert all(published_shape(name).records for name in published)
    assert len(partition_names()) == 16 and "sixteen partitions" in table["data"]


EXAMPLES = sorted(f for f in (ROOT / "examples").glob("*.yaml") if "policy" not in f.stem)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_plans_without_data(
    example: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    nowhere = shlex.quote(str(folder / "nowhere"))
    done = in_process(f"secure-fgl plan examples/{example.name} --set data.root={nowhere}")
    assert done.returncode == 0, done.stderr


def test_the_row_of_attacks_names_all_that_are_there() -> None:
    from audits.attacks import attacks

    (row,) = [line for line in README.splitlines() if line.startswith("| attacks |")]
    named = set()
    for first, last in re.findall(r"A(\d\d)(?: to A(\d\d))?", row.split("`secure-fgl")[0]):
        named |= {f"A{number:02}" for number in range(int(first), int(last or first) + 1)}
    assert named == {attack.id for attack in attacks()}
