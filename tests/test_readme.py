"""The README is run: its Python block and its commands, in a folder of their own."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


def test_the_python_block_plans_runs_and_audits(folder: Path) -> None:
    (code,) = [block for block in blocks("python") if block.startswith("from secure_fgl")]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "only the cohort's total" in done.stdout
    assert "self-consistent only" in done.stdout
    assert (folder / "runs/readme/report/report.html").is_file()


def test_the_command_block_does_what_its_comments_say(folder: Path) -> None:
    (commands,) = [block for block in blocks("sh") if "secure-fgl plan" in block]
    program = str(Path(sys.executable).parent / "secure-fgl")
    for line in commands.strip().splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "secure-fgl"
        done = subprocess.run(
            [program, *words[1:]],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        expected = 6 if "exit 6" in line else 0
        assert done.returncode == expected, (line, done.stderr)


def test_every_local_link_leads_somewhere() -> None:
    for document in ROOT.glob("**/*.md"):
        if any(
            part.startswith(".") or part == "runs" for part in document.parts[len(ROOT.parts) :]
        ):
            continue
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text("utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), (document.name, target)


def test_what_the_readme_counts_is_there() -> None:
    from secure_fgl.catalogue import algorithm_names
    from secure_fgl.data import dataset_names, partition_names, published_shape

    table = dict(re.findall(r"^\| (algorithms|data) \| (.*) \|$", README, flags=re.M))
    assert set(re.findall(r"`(\w+)`", table["algorithms"])) == set(algorithm_names())
    mixtures = {name for name in dataset_names() if name.startswith(("pyg/", "tu_"))}
    published = set(dataset_names()) - mixtures - {"synthetic_banks"}
    assert f"{len(published)} published sets" in table["data"]
    assert all(published_shape(name).records for name in published)
    assert len(partition_names()) == 12 and "twelve partitions" in table["data"]


EXAMPLES = sorted(f for f in (ROOT / "examples").glob("*.yaml") if "policy" not in f.stem)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_plans_without_data(example: Path, folder: Path) -> None:
    words = [sys.executable, "-m", "secure_fgl.cli", "plan", f"examples/{example.name}"]
    done = subprocess.run(
        [*words, "--set", f"data.root={folder / 'nowhere'}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
