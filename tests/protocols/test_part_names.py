"""A role's file and a disclosure's folder have names of their own: they are keys of one table."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from protocols.disclosures.names import Disclosure
from protocols.plan.steps import Service, check_names
from protocols.wire.roles import Role

ROOT = Path(__file__).resolve().parents[2]
MEANT = "import protocols.plan.steps as steps; print(steps.__file__)"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the two lowest floors."""
    place = tmp_path_factory.mktemp("tree")
    for floor in ("crypto", "protocols"):
        shutil.copytree(ROOT / floor, place / floor, ignore=shutil.ignore_patterns("__pycache__"))
    return place


def imported(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", "-c", MEANT], cwd=tree, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("dropped", "name"),
    [
        ("roles/ask.py", "ask"),
        ("roles/sum.py", "sum"),
        ("disclosures/heads/__init__.py", "heads"),
        ("disclosures/witness/__init__.py", "witness"),
        ("roles/courier.py", ""),
    ],
)
def test_a_dropped_file_with_a_name_that_is_taken_is_refused(
    tree: Path, dropped: str, name: str
) -> None:
    file = tree / "protocols" / dropped
    file.parent.mkdir(exist_ok=True)
    file.write_text("MEANING, BACK, GIVEN = '', False, None\n")
    found = imported(tree)
    file.unlink()
    if file.name == "__init__.py":
        shutil.rmtree(file.parent)
    if name:
        assert found.returncode and f"Two parts of the plan are called '{name}'" in found.stderr
    else:
        assert found.stdout.startswith(str(tree)), found.stderr


def test_names_are_held_apart_whatever_their_letters() -> None:
    check_names(Service, Disclosure, Role)
    for other in ("SUM", "sum", "Client", "ask"):
        with pytest.raises(TypeError, match=other.lower()):
            check_names(Service, Disclosure, Role, (other,))
