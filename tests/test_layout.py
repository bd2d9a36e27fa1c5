"""The tree has no circle of imports; registries hold their members alone; each rule can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.house_rules import FLOORS
from scripts.layout import findings, read

ROOT = Path(__file__).resolve().parent.parent


def test_the_tree_obeys() -> None:
    files = read(ROOT, FLOORS)
    assert len(files) > 300
    assert [str(found) for found in findings(files)] == []


@pytest.mark.parametrize(
    "back",
    [
        "from protocols.a import x",
        "from protocols import a",
        "import protocols.a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from protocols.a import x",
        "def f():\n    from protocols.a import x",
    ],
)
def test_a_circle_is_found_however_it_is_closed(back: str) -> None:
    files = {"protocols/a.py": "from protocols.b import y\nx = 1", "protocols/b.py": back}
    (found,) = findings(files)
    assert "a circle of imports" in found.remark
    assert "protocols.a" in found.remark
    assert "protocols.b" in found.remark


def test_a_long_circle_is_found_and_a_ladder_is_none() -> None:
    ladder = {f"audits/m{i}.py": f"import audits.m{i + 1}" for i in range(9)}
    assert findings({**ladder, "audits/m9.py": ""}) == []
    (found,) = findings({**ladder, "audits/m9.py": "import audits.m0"})
    assert found.remark.count(">") == 10


def test_a_registry_holds_as_many_members_as_there_are_and_nothing_else() -> None:
    files = {f"audits/attacks/m{i}.py": "" for i in range(30)}
    files |= {"audits/attacks/__init__.py": "", "secure_fgl/cli/__main__.py": ""}
    assert findings(files) == []
    (found,) = findings({**files, "audits/attacks/_tools.py": ""})
    assert found.path == "audits/attacks/_tools.py"
