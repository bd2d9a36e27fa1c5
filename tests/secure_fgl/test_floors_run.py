"""Runs beside a stranger's package of the same name: none of them uses it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from secure_fgl import _floors
from secure_fgl.cli._shared.verb import exit_code
from secure_fgl.reasons import explain
from tests.secure_fgl.floors_tools import start

HOUSE = Path(_floors.__file__).parent.parent
RUN = """
from secure_fgl.config import Config
from secure_fgl.federation import Federation
small = {
    'algorithm': {'name': 'fed_avg', 'rounds': 2},
    'model': {'hidden': 8},
    'data': {'name': 'synthetic_banks', 'options': {'customers': 20, 'transactions': 30},
             'partition': {'clients': 5}},
    'evaluation': {'references': []},
    'policy': 'masks',
}
import crypto.masks
run = Federation.from_config(Config.parse(small)).run(OUT)
print(run.verify().failed, crypto.masks.__file__)
"""
NO_MASKS = ("    add = _add_words if", "    return\n    add = _add_words if")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our five folders as a wheel installs them."""
    root = tmp_path_factory.mktemp("wheel")
    for floor in (*_floors.FLOORS, "secure_fgl"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(HOUSE / floor, root / floor, ignore=ignored)
    return root


@pytest.fixture
def yard(tmp_path: Path) -> Path:
    """A folder with somebody else's `crypto`: ours, but for masks that are never put on."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HOUSE / "crypto", tmp_path / "yard" / "crypto", ignore=ignored)
    masks = tmp_path / "yard" / "crypto" / "masks.py"
    assert NO_MASKS[0] in masks.read_text("utf-8")
    masks.write_text(masks.read_text("utf-8").replace(*NO_MASKS), "utf-8")
    return tmp_path / "yard"


def play(wheel: Path, out: Path, before: str) -> subprocess.CompletedProcess[str]:
    head = f"import secure_fgl, sys\nOUT = {str(out)!r}\n{before}"
    return start(wheel, code=head + RUN, bare=False, OMP_NUM_THREADS="1")


def without_result(done: subprocess.CompletedProcess[str], out: Path) -> None:
    assert done.returncode != 0 and done.stdout == "", done.stdout
    assert "NotOurCode: Secure-FGL refuses to" in done.stderr, done.stderr
    assert not (out / "result.json").exists()
    closing = (out / "ledger" / "aggregator.jsonl").read_text().splitlines()[-1]
    assert json.loads(closing)["kind"] == "close" and "result" not in json.loads(closing)


def test_a_changed_path_reaches_no_floor_any_more(wheel: Path, yard: Path, tmp_path: Path) -> None:
    """Without the import at the start this run finished without masks, and verified."""
    done = play(wheel, tmp_path / "run", f"sys.path.insert(0, {str(yard)!r})")
    assert done.stdout.split() == ["None", str(wheel / "crypto" / "masks.py")], done.stderr


def test_a_floor_that_is_imported_anew_runs_nothing(
    wheel: Path, yard: Path, tmp_path: Path
) -> None:
    again = f"""
sys.path.insert(0, {str(yard)!r})
for name in [n for n in sys.modules if n.partition('.')[0] == 'crypto']:
    del sys.modules[name]
"""
    done = play(wheel, tmp_path / "run", again)
    without_result(done, tmp_path / "run")
    assert str(yard / "crypto") in done.stderr
    assert not any(b'"release"' in f.read_bytes() for f in (tmp_path / "run").rglob("*.jsonl"))


def test_the_command_line_says_what_was_found() -> None:
    error = _floors.NotOurCode("Secure-FGL refuses to go on.\n  found:    /x.py")
    assert explain(error) == [
        "Error: Secure-FGL refuses to go on.",
        "  found:    /x.py",
    ]
    assert exit_code(error) == 1
