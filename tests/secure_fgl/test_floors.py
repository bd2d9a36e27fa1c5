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
from tests.secure_fgl.floors_tools import CALL, record, start

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


def overwrite(house: Path) -> None:
    (house / "crypto" / "masks.py").write_text("mine = 'no'\n")


def remove(house: Path) -> None:
    (house / "crypto" / "masks.py").unlink()


def add(house: Path) -> None:
    (house / "crypto" / "extra.py").touch()


def shadow(house: Path) -> None:
    """Python takes a package before a module of the same name."""
    (house / "crypto" / "masks").mkdir()
    (house / "crypto" / "masks" / "__init__.py").touch()


def compile_(house: Path) -> None:
    """Python takes a compiled extension before source."""
    (house / "crypto" / "masks.abi3.so").touch()


def link(house: Path) -> None:
    (house / "crypto" / "masks").symlink_to(house / "protocols", target_is_directory=True)


def template(house: Path) -> None:
    (house / "audits" / "page.j2").write_text("other")


CHANGES = [overwrite, remove, add, shadow, compile_, link, template]


def cache(house: Path) -> None:
    """What Python and editors leave is no change: no import by name reaches it."""
    for name in ("__pycache__/masks.cpython-311.pyc", ".masks.py.swp", ".idea/x.py"):
        (house / "crypto" / name).parent.mkdir(exist_ok=True)
        (house / "crypto" / name).touch()


@pytest.fixture
def whole(house: Path) -> Path:
    """The minimal house with two more files."""
    (house / "crypto" / "masks.py").write_text("mine = True\n")
    (house / "audits" / "page.j2").write_text("page")
    return house


def told(result: subprocess.CompletedProcess[str], change: object, stdout: str) -> None:
    assert result.returncode != 0 and result.stdout == stdout
    words = {overwrite: "was changed", remove: "is missing", template: "was changed"}
    assert f"{words.get(change, 'does not belong there')}\n" in result.stderr
    assert "NotOurCode: Secure-FGL refuses to" in result.stderr and "What to do:" in result.stderr


@pytest.mark.parametrize("change", CHANGES)
def test_an_installation_is_held_against_its_record(whole: Path, change) -> None:
    record(whole)
    cache(whole)
    assert start(whole).stdout == "started\n"
    change(whole)
    told(start(whole), change, "")


@pytest.mark.parametrize("wheel", [True, False])
@pytest.mark.parametrize("change", [cache, *CHANGES])
def test_files_that_change_while_it_runs_are_found(whole: Path, change, wheel: bool) -> None:
    """In a checkout, too: there the first check says what the files are."""
    if wheel:
        record(whole)
    twin = whole.parent / "twin"  # the change, made ready to be copied over the house
    code = f"""{CALL}
import shutil, subprocess
subprocess.run(['sh', '-c', 'rm -r $1/*; cp -R $2/* $1; cp -R $2/crypto/. $1/crypto',
                'sh', {str(whole)!r}, {str(twin)!r}], check=True)
guard.check()
print('again')"""
    import shutil

    shutil.copytree(whole, twin)
    change(twin)
    result = start(whole, code=code)
    if change is cache:
        assert result.stdout == "started\nagain\n", result.stderr
    else:
        told(result, change, "started\n")


def test_a_record_that_is_rewritten_while_it_runs_helps_nobody(whole: Path) -> None:
    facts = record(whole)
    before = (facts / "RECORD").read_text()
    overwrite(whole)
    record(whole)
    after = (facts / "RECORD").read_text()
    (facts / "RECORD").write_text(before)
    (whole / "crypto" / "masks.py").write_text("mine = True\n")
    assert start(whole).stdout == "started\n" and before != after
    code = f"""{CALL}
from pathlib import Path
Path({str(whole)!r}, 'crypto', 'masks.py').write_text("mine = 'no'\\n")
Path({str(facts)!r}, 'RECORD').write_text({after!r})
guard.check()"""
    told(start(whole, code=code), overwrite, "started\n")
    assert start(whole).stdout == "started\n"  # control: the two fit each other


@pytest.mark.parametrize("spoilt", ["", "RECORD", "lines", "two"])
def test_an_installation_without_its_record_is_refused(whole: Path, spoilt: str) -> None:
    """Or whoever takes the record away would choose the weaker check."""
    facts = record(whole)
    if spoilt == "RECORD":
        (facts / "RECORD").unlink()
    elif spoilt == "lines":
        (facts / "RECORD").write_text("secure_fgl-0.1.0.dist-info/RECORD,,\n")
    elif spoilt == "two":
        (whole / "secure_fgl-0.2.0.dist-info").mkdir()
        (whole / "secure_fgl-0.2.0.dist-info" / "METADATA").write_text("Name: secure-fgl\n")
    result = start(whole)
    if not spoilt:
        assert result.stdout == "started\n"
        return
    assert result.stdout == "" and "has no record of its own files" in result.stderr


def test_a_line_without_a_digest_is_no_record_of_a_file(whole: Path) -> None:
    facts = record(whole)
    lines = (facts / "RECORD").read_text().splitlines()
    bare = [f"{n},," if (n := line.split(",")[0]) == "crypto/masks.py" else line for line in lines]
    (facts / "RECORD").write_text("\n".join(bare))
    told(start(whole), overwrite, "")
