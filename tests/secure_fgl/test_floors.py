"""The guard refuses a stranger's code under the name of ours, at the start and later on.

Runs of changed installations are in test_floors_run.py.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from secure_fgl import _floors
from tests.secure_fgl.floors_tools import CALL, start

GUARD = Path(_floors.__file__)


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
    assert "NotOurCode: Secure-FGL refuses to" in result.stderr
    assert str(intruder) in result.stderr
    assert "What to do:" in result.stderr


def test_an_untouched_house_starts(house: Path) -> None:
    assert start(house).stdout == "started\n"


def test_our_own_house_starts() -> None:
    _floors.check()


def test_modules_that_are_loaded_while_others_are_looked_at_are_no_error() -> None:
    """A collection of garbage may import, by what it finalises, between any two modules."""
    late = list[str]()

    def load(phase: str, info: object) -> None:
        late.append(f"late_{len(late)}")
        sys.modules[late[-1]] = ModuleType(late[-1])

    limits = gc.get_threshold()
    gc.callbacks.append(load)
    gc.set_threshold(1)
    try:
        _floors.check()
    finally:
        gc.set_threshold(*limits)
        gc.callbacks.remove(load)
        for name in late:
            sys.modules.pop(name, None)
    assert len(late) > 10  # it did happen


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
    assert "NotOurCode: Secure-FGL refuses to start" in result.stderr


def test_a_floor_with_a_second_folder_is_refused(house: Path, yard: Path) -> None:
    intruder = plant(yard, "crypto")
    code = f"import crypto; crypto.__path__.append({str(intruder)!r}); {CALL}"
    refused(start(house, code=code), intruder)


def test_a_missing_floor_is_refused(house: Path) -> None:
    (house / "audits" / "__init__.py").unlink()
    result = start(house)
    assert "its floor 'audits' is missing or incomplete" in result.stderr
    assert str(house / "audits" / "__init__.py") in result.stderr


def test_all_floors_are_imported_and_later_paths_change_nothing(house: Path, yard: Path) -> None:
    """Before, the guard only looked: what the path held by the time of the import was imported."""
    (house / "crypto" / "masks.py").write_text("mine = True\n")
    for floor in _floors.FLOORS:
        (plant(yard, floor) / "masks.py").write_text("mine = False\n")
    code = f"""{CALL}
import sys
assert {set(_floors.FLOORS)!r} <= set(sys.modules) and "torch" not in sys.modules
sys.path.insert(0, {str(yard)!r})
import crypto.masks, protocols, algorithms, audits
print(crypto.masks.mine)
guard.check()"""
    assert start(house, code=code).stdout == "started\nTrue\n"


STRANGE = {
    "a module in memory": "sys.modules['crypto.masks'] = types.ModuleType('crypto.masks')",
    "nothing at all": "sys.modules['crypto.masks'] = None",
    "a file from elsewhere": """
spec = importlib.util.spec_from_file_location('crypto.masks', YARD + '/masks.py')
sys.modules['crypto.masks'] = importlib.util.module_from_spec(spec)""",
    "a second folder": "crypto.__path__.append(YARD)",
    "another folder": "crypto.__path__ = [YARD]",
    "a finder that knows better": """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == 'crypto.other':
            return importlib.util.spec_from_file_location(name, YARD + '/masks.py')
sys.meta_path.insert(0, Finder())
import crypto.other""",
    "a loader that rewrites": """
class Loader(importlib.machinery.SourceFileLoader):
    def get_data(self, path):
        return b'mine = False'
loader = Loader('crypto.masks', crypto.masks.__file__)
spec = importlib.util.spec_from_loader('crypto.masks', loader)
sys.modules['crypto.masks'] = importlib.util.module_from_spec(spec)""",
    "a floor that was imported anew": """
for name in [n for n in sys.modules if n.startswith('crypto')]:
    del sys.modules[name]
sys.path.insert(0, YARD)
import crypto.masks""",
}
FIRST = f"""import importlib.machinery, importlib.util, sys, types
{CALL}
import crypto.masks
"""


@pytest.mark.parametrize("what", ["", *STRANGE])
def test_a_module_that_is_not_ours_is_found_later(house: Path, yard: Path, what: str) -> None:
    (house / "crypto" / "masks.py").write_text("mine = True\n")
    (plant(yard, "crypto") / "masks.py").write_text("mine = False\n")
    (yard / "masks.py").write_text("mine = False\n")
    code = f"{FIRST}YARD = {str(yard)!r}\n{STRANGE.get(what, '')}\nguard.check()\nprint('again')"
    result = start(house, code=code)
    if not what:
        assert result.stdout == "started\nagain\n"
        return
    assert result.stdout == "started\n" and result.returncode != 0
    assert "NotOurCode: Secure-FGL refuses to" in result.stderr and "crypto" in result.stderr
