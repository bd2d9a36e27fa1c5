"""The start-up guard refuses a stranger's package that bears the name of one of our floors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from secure_fgl import _floors

GUARD = Path(_floors.__file__)
CALL = "import secure_fgl._floors as guard; guard.check(); print('started')"


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A minimal house: the guard itself and four empty floors."""
    root = tmp_path / "house"
    for name in ("secure_fgl", *_floors.FLOORS):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").touch()
    (root / "secure_fgl" / "_floors.py").write_bytes(GUARD.read_bytes())
    return root


@pytest.fixture
def yard(tmp_path: Path) -> Path:
    """A folder outside the house, where strangers live."""
    folder = tmp_path / "yard"
    folder.mkdir()
    return folder


def start(*path: Path, code: str = CALL) -> subprocess.CompletedProcess[str]:
    """Run `code` with exactly these folders ahead of the standard library."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    # -S leaves out site-packages: the house under test is the copy, not the installation.
    command = [sys.executable, "-S", "-B", "-P", "-c", code]
    return subprocess.run(  # noqa: PLW1510
        command, env=environment, capture_output=True, text=True, timeout=60
    )


def plant(folder: Path, floor: str) -> Path:
    """A package `floor` in `folder`, as another distribution would install it."""
    package = folder / floor
    package.mkdir()
    (package / "__init__.py").touch()
    return package


def refused(result: subprocess.CompletedProcess[str], intruder: Path) -> None:
    """The start was refused with an ImportError that names the intruder and a remedy."""
    assert result.returncode != 0
    assert "started" not in result.stdout
    assert "ImportError: Secure-FGL refuses to start" in result.stderr
    assert str(intruder) in result.stderr
    assert "What to do:" in result.stderr


def test_an_untouched_house_starts(house: Path) -> None:
    assert start(house).stdout == "started\n"


def test_our_own_house_starts() -> None:
    _floors.check()


def test_a_house_reached_through_a_link_starts(house: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(house, target_is_directory=True)
    assert start(link).stdout == "started\n"


@pytest.mark.parametrize("floor", _floors.FLOORS)
def test_a_stranger_earlier_on_the_path_is_refused(house: Path, yard: Path, floor: str) -> None:
    intruder = plant(yard, floor)
    refused(start(yard, house), intruder)


def test_a_stranger_later_on_the_path_does_no_harm(house: Path, yard: Path) -> None:
    plant(yard, "crypto")
    assert start(house, yard).stdout == "started\n"


def test_a_stranger_in_one_file_is_refused(house: Path, yard: Path) -> None:
    intruder = yard / "crypto.py"
    intruder.touch()
    refused(start(yard, house), intruder)


def test_a_stranger_that_is_already_imported_is_refused(house: Path, yard: Path) -> None:
    intruder = plant(yard, "crypto")
    code = f"import sys; sys.path.insert(0, {str(yard)!r}); import crypto; del sys.path[0]; {CALL}"
    refused(start(house, code=code), intruder)


def test_a_module_in_memory_is_refused(house: Path) -> None:
    code = f"import sys, types; sys.modules['crypto'] = types.ModuleType('crypto'); {CALL}"
    result = start(house, code=code)
    assert "ImportError: Secure-FGL refuses to start" in result.stderr


def test_a_floor_with_a_second_folder_is_refused(house: Path, yard: Path) -> None:
    intruder = plant(yard, "crypto")
    code = f"import crypto; crypto.__path__.append({str(intruder)!r}); {CALL}"
    refused(start(house, code=code), intruder)


def test_a_missing_floor_is_refused(house: Path) -> None:
    (house / "audits" / "__init__.py").unlink()
    result = start(house)
    assert "its floor 'audits' is missing or incomplete" in result.stderr
    assert str(house / "audits" / "__init__.py") in result.stderr


def test_the_guard_imports_no_floor(house: Path) -> None:
    (house / "crypto" / "__init__.py").write_text("raise SystemExit('imported')\n")
    assert start(house).stdout == "started\n"
