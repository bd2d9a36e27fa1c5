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
