"""A copy of the tree under git, into which something new was dropped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOYS = ROOT / "tests" / "toys"


def dropped(place: Path, toys: Mapping[str, str]) -> Path:
    """Copy the tree to `place`, and each of `toys` to where it belongs; return the copy.

    Args:
        place: a folder that is not there yet.
        toys: by name in tests/toys, the path in the tree.
    """
    for name in filter(None, git(ROOT, "ls-files", "-z").split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("docs/", "tests/vectors/")):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            # With its time, which bytecode goes by: else each copy would compile all of it anew.
            shutil.copy2(ROOT / name, place / name)
            for compiled in bytecode(ROOT / name):
                (place / name).parent.joinpath("__pycache__").mkdir(exist_ok=True)
                shutil.copyfile(compiled, place / compiled.relative_to(ROOT))
    git(place, "init", "-q")
    git(place, "add", "-A")
    for name, path in toys.items():
        copy = shutil.copytree if (TOYS / name).is_dir() else shutil.copyfile
        copy(TOYS / name, place / path)
    return place


def bytecode(file: Path) -> list[Path]:
    """Return what Python and pytest kept of a module; they check that it is of this file."""
    if file.suffix != ".py":
        return []
    return list(file.parent.glob(f"__pycache__/{file.stem}.*.pyc"))


def new_paths(place: Path) -> list[str]:
    """Return what is new in the copy, but for laws that are run there; nothing else may differ."""
    assert not git(place, "diff", "--name-only")
    lines = git(place, "status", "--porcelain").splitlines()
    return [line[3:] for line in lines if line[0] == "?" and not line[3:].startswith("tests/")]


def git(folder: Path, *words: str) -> str:
    """Run git there; return what it prints."""
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run this Python in the copy, on the copy's code."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    command, pipe = [sys.executable, *words], subprocess.PIPE
    return subprocess.run(
        command, cwd=folder, env=environment, check=False, stdout=pipe, stderr=pipe, text=True
    )


def laws(place: Path, file: str, chosen: str) -> str:
    """Run a file of laws in the copy's tests/laws; return what failed, nothing if nothing did."""
    there = place / "tests" / "laws" / "test_dropped.py"
    shutil.copyfile(TOYS / file, there)
    done = python(place, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, str(there))
    return "" if done.returncode == 0 else done.stdout[-6000:] + done.stderr[-2000:]
