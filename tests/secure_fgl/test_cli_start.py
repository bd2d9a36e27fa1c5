"""Start-up, help, mistyped words: everything that must answer at once."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import secure_fgl
from secure_fgl.cli._shared.app import app
from tests.secure_fgl.cli_tools import invoke, start


def verbs(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every group and command below a command, by the words that name it."""
    for name, inner in getattr(command, "commands", {}).items():
        yield (*words, name)
        yield from verbs(inner, (*words, name))


VERBS = tuple(verbs(get_command(app)))
HEAVY = ("torch", "numpy", "pydantic", "scipy", "tenseal", "yaml", "jinja2", "networkx")


def test_help_imports_nothing_heavy() -> None:
    code = f"""
import sys
from secure_fgl.cli import main
sys.argv = ["secure-fgl", "--help"]
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
print("LOADED", [name for name in {HEAVY} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "LOADED []" in done.stdout


def test_help_takes_less_than_600_ms_of_processor_time(tmp_path: Path) -> None:
    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    taken = []
    for _ in range(3):  # processor time, best of three: a busy machine is not our fault
        before = spent()
        out, _ = start(["--help"], tmp_path).communicate(timeout=60)
        assert "Usage" in out
        taken.append(spent() - before)
    assert min(taken) < 0.6


@pytest.mark.parametrize("words", [(), *VERBS], ids=" ".join)
def test_every_help_shows_an_example(words: tuple[str, ...]) -> None:
    shown = invoke(*words, "--help")
    assert shown.exit_code == 0
    after = shown.stdout.partition("Example")[2]
    assert f"secure-fgl {' '.join(words)}".strip() in " ".join(after.split())
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_completion_offers_the_verbs(tmp_path: Path) -> None:
    asked = {
        "_SECURE_FGL_COMPLETE": "complete_bash",
        "COMP_WORDS": "secure-fgl r",
        "COMP_CWORD": "1",
    }
    out = start([], tmp_path, **asked).communicate(timeout=60)[0]
    assert {"run", "runs"} <= set(out.split()) and "plan" not in out.split()


def test_version() -> None:
    shown = invoke("--version")
    assert (shown.exit_code, shown.stdout) == (0, f"secure-fgl {secure_fgl.__version__}\n")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("pln", "x.yaml"), "'plan'"),
        (("audit", "verfy", "x"), "'verify'"),
        (("run", "x.yaml", "--pla", "p.json"), "--plan"),
        (("list", "algoritms"), "'algorithms'"),
        (("schema", "polcy"), "'policy'"),
        (("audit", "report", "x", "--format", "htm"), "'html'"),
    ],
)
def test_a_mistyped_word_names_the_nearest(typed: tuple[str, ...], meant: str) -> None:
    shown = invoke(*typed)
    assert shown.exit_code == 2
    assert meant in shown.stderr
    assert shown.stdout == ""


@pytest.mark.parametrize(
    ("words", "environment"),
    [(["--no-color", "run"], {}), (["run", "--no-color"], {}), (["run"], {"NO_COLOR": "1"})],
)
def test_no_color_is_obeyed(words: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    def errors(*typed: str, **extra: str) -> str:
        process = start([*typed, "none.yaml"], tmp_path, FORCE_COLOR="1", **extra)
        err = process.communicate(timeout=60)[1]
        assert process.returncode == 2
        return err

    red = "\x1b[1;31m"
    assert red in errors("run")
    assert red not in errors(*words, **environment)
