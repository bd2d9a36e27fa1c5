"""The repository's own rules hold, and each of them can fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from scripts import freeze
from scripts.house_rules import (
    FLOORS,
    REGISTRIES,
    SOURCES,
    UNPICKLER,
    inspect,
    inspect_all,
)

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

_ENVELOPE = "from protocols.wire.envelope import Envelope\n"
_SESSION = "from protocols.roles.client import ClientSession\n"
_ENGINE = "from protocols.sessions.engine import Session\n"
LONG_FUNCTION = "def f():\n" + "    x = 1\n" * 60
DOCUMENTED = 'def f():\n    """' + "word\n" * 30 + '    """\n' + "    x = 1\n" * 59


# --- rules on the syntax tree -----------------------------------------------------------------


def test_the_house_rules_hold() -> None:
    assert [str(finding) for finding in inspect_all(ROOT)] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("algorithms/a.py", "from protocols import gateway"),
        ("algorithms/a.py", "from protocols import *"),
        ("algorithms/a.py", "from protocols.wire.gateway import Gateway"),
        ("algorithms/a.py", "import protocols.policy.policy"),
        ("algorithms/a.py", "import protocols.messages, protocols.wire.gateway"),
        ("algorithms/a.py", "import protocols.messages\nx = protocols.wire.gateway.Gateway"),
        ("algorithms/nn/a.py", "def f():\n    from protocols.messages_private import x"),
        ("algorithms/a.py", "import sys\nsys.modules['crypto']"),
        ("algorithms/a.py", "import os"),
        ("secure_fgl/a.py", f"{_ENVELOPE}Envelope(b'')"),
        ("protocols/a.py", "from protocols.wire.envelope import Envelope as E\nE(b'')"),
        ("protocols/a.py", "from protocols import envelope\nenvelope.Envelope(b'')"),
        ("protocols/a.py", "from .envelope import Envelope as E\nE(b'')"),
        ("audits/a.py", f"{_ENVELOPE}x = Envelope"),
        ("audits/a.py", f"{_ENVELOPE}Envelope.__new__(Envelope)"),
        ("audits/a.py", "from protocols.wire.envelope import Envelope as E\nobject.__new__(E)"),
        ("audits/a.py", f"{_ENVELOPE}class Mine(Envelope): ..."),
        ("audits/a.py", "import importlib\nimportlib.import_module(name)"),
        ("audits/a.py", "from importlib import import_module as load"),
        ("audits/a.py", "__import__('crypto')"),
        ("audits/a.py", "exec('import crypto')"),
        ("crypto/a.py", "import pickle"),
        ("crypto/a.py", "from pickle import loads"),
        ("scripts/a.py", "def f():\n    import shelve"),
        ("secure_fgl/a.py", "import numpy as np\nnp.load(path, allow_pickle=True)"),
        ("secure_fgl/a.py", "import numpy as np\nnp.load(path, allow_pickle=flag)"),
        ("secure_fgl/a.py", "import torch\ntorch.load(path)"),
        ("secure_fgl/a.py", "import torch\ntorch.save(model, path)"),
        ("secure_fgl/a.py", "import pandas\npandas.read_pickle(path)"),
        ("algorithms/a.py", "import torch\ntorch.manual_seed(1)"),
        ("algorithms/a.py", "from torch import manual_seed"),
        ("examples/a.py", "import numpy as np\nnp.random.seed(1)"),
        ("examples/a.py", "from numpy import random as chance\nchance.seed(1)"),
        ("protocols/sessions/a.py", f"{_SESSION}class Mine(ClientSession): ..."),
        ("protocols/sessions/a.py", f"{_SESSION}class Mine(Some, ClientSession): ..."),
        ("protocols/sessions/a.py", f"{_SESSION}Base = 1\nclass ASession(ClientSession): ..."),
        (
            "protocols/disclosures/sum/a.py",
            "from protocols.roles.client import ClientSession as Base\nclass Mine(Base): ...",
        ),
        (
            "protocols/disclosures/sum/a.py",
            "from protocols.sessions import client\nclass Mine(client.ClientSession): ...",
        ),
        ("protocols/sessions/a.py", f"{_ENGINE}class Tower(Session): ..."),
        (
            "protocols/sessions/a.py",
            f"{_ENGINE}class ASession(Session): ...\nclass BSession(ASession): ...",
        ),
        ("audits/a.py", "def f(sent):\n    return sent.item.endswith(end)"),
        ("audits/a.py", "def f(sent, ends):\n    return any(map(sent.item.endswith, ends))"),
        ("audits/a.py", "def f(item):\n    return item.id.partition(dot)[0]"),
        ("audits/a.py", "def f(item):\n    return word in item.id"),
        ("audits/a.py", "def f(entry):\n    return word not in entry['item']"),
        ("audits/a.py", "def f(entry):\n    return entry['item'].split(dot)"),
        ("audits/a.py", "def f(plan):\n    return [id for id in plan if id.startswith(name)]"),
        ("audits/a.py", "def f(item):\n    return item.id == 'pair.call'"),
        ("secure_fgl/a.py", "UP = '.up.'"),
        ("secure_fgl/a.py", "def f(disclosure):\n    return f'.opened.{disclosure}'"),
        ("protocols/a.py", "def f(name):\n    return f'{name}.match.compare'"),
        ("protocols/a.py", "def f(role):\n    return f'refusal.{role}'"),
        ("benchmarks/a.py", "ENTRY = {'item': 'train.up.SUM'}"),
        ("protocols/a.py", "def f(parcel):\n    return parcel"),
        ("protocols/a.py", "class OwnPapers: ..."),
        ("protocols/a.py", "x = y._letters"),
        ("protocols/sittings.py", ""),
        ("protocols/a.py", "f(sitting=1)"),
        ("audits/a.py", LONG_FUNCTION),
        ("audits/a.py", "class A:\n    " + LONG_FUNCTION.replace("\n", "\n    ")),
    ],
)
def test_a_planted_violation_is_found(path: str, text: str) -> None:
    assert inspect(path, text)


@pytest.mark.parametrize(
    "text",
    [
        *("import os", "import sys as math", "import gc", "import pathlib", "import requests"),
        *("import pickle", "from importlib import util", "from ctypes import cdll"),
        *("import crypto.masks", "from secure_fgl import config", "from . import near"),
        "def f():\n    import socket",
    ],
)
def test_an_algorithm_imports_nothing_but_what_computes(text: str) -> None:
    assert inspect("algorithms/a.py", text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "algorithms/a.py",
            "from protocols.messages import Ask\nfrom protocols.rounds import Round",
        ),
        ("algorithms/a.py", "from protocols import messages, rounds\nmessages.Ask()"),
        ("algorithms/a.py", "import protocols.messages\nprotocols.messages.Ask()"),
        ("audits/a.py", "from protocols import gateway"),
        ("protocols/wire/gateway.py", f"{_ENVELOPE}Envelope(b'')"),
        ("secure_fgl/a.py", f"{_ENVELOPE}Envelope.from_bytes(b'')"),
        ("secure_fgl/a.py", f"{_ENVELOPE}x: Envelope | None = None"),
        ("algorithms/a.py", "model.eval()"),
        ("algorithms/a.py", "import torch\ntorch.Generator().manual_seed(1)"),
        ("algorithms/a.py", "import numpy as np\nnp.random.default_rng(1)"),
        ("algorithms/a.py", "import numpy as np\nnp.add.at(x, y, z)\nnp.linalg.solve(x, y)"),
        ("algorithms/a.py", "import torch\ntorch.nn.functional.relu(x)\ntorch.Tensor.cpu(x)"),
        ("algorithms/a.py", "import scipy.sparse as sp\nsp.csr_array(x).tocoo().copy()"),
        ("algorithms/a.py", "import functools\nfunctools.partial(f, 1)"),
        ("algorithms/a.py", "class A:\n    def __init__(self):\n        super().__init__()"),
        ("algorithms/a.py", "def f(state):\n    return getattr(state, 'start', None)"),
        (UNPICKLER, "import pickle"),
        ("secure_fgl/a.py", "import numpy as np\nnp.load(path, allow_pickle=False)"),
        ("secure_fgl/a.py", "import torch\ntorch.load(path, weights_only=True)"),
        ("protocols/sessions/a.py", f"{_ENGINE}class ASession(Session): ..."),
        ("protocols/sessions/a.py", "class Session: ..."),
        ("secure_fgl/a.py", f"{_SESSION}class Mine(ClientSession): ..."),
        ("audits/a.py", "def f(sent, known):\n    return sent.item in known and sent.item[:60]"),
        ("audits/a.py", "def f(item, other):\n    return item.id == other.id, len(item.items())"),
        ("audits/a.py", "def f(path):\n    return path.endswith('.npz'), 'a text with .up. in it'"),
        ("protocols/plan/steps.py", "def f(exchange, part):\n    return f'{exchange}.up.{part}'"),
        ("audits/a.py", "def f(context, bookkeeping):\n    return 'a letter'"),
        ("audits/a.py", DOCUMENTED),
        ("audits/a.py", "x = 1\n" * 800),
        *[(path, "from importlib import import_module") for path in REGISTRIES],
    ],
)
def test_what_is_allowed_is_not_reported(path: str, text: str) -> None:
    assert inspect(path, text) == []


def test_a_finding_names_the_place_once() -> None:
    (finding,) = inspect("algorithms/a.py", "import torch\n\ntorch.manual_seed(1)\n")
    assert str(finding).startswith("algorithms/a.py:3: torch.manual_seed")


# --- which floor may import which -------------------------------------------------------------


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """Five floors in which each file imports what it may, under the real contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    files = {
        "crypto/masks.py": "import numpy, secrets\n",
        "protocols/messages.py": "from crypto import masks\n",
        "algorithms/fed_avg.py": "import torch\nfrom protocols import messages\n",
        "audits/report.py": "import time, crypto.masks\nfrom algorithms import fed_avg\n",
        "secure_fgl/cli.py": "import socket, crypto.masks\nfrom audits import report\n",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir()
        (file.parent / "__init__.py").touch()
        file.write_text(text, "utf-8")
    return tmp_path


def broken_contracts(root: Path) -> set[str]:
    """Run import-linter and return the names of the contracts that it calls broken."""
    tool = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [tool, "--no-cache", "--no-logo"],
        cwd=root,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    names = {contract["name"] for contract in PYPROJECT["tool"]["importlinter"]["contracts"]}
    broken = {name for name in names if f"{name} BROKEN" in result.stdout}
    assert (result.returncode != 0) == bool(broken), result.stdout + result.stderr
    assert broken | {name for name in names if f"{name} KEPT" in result.stdout} == names
    return broken


def test_the_contracts_allow_what_the_floor_plan_allows(toy: Path) -> None:
    assert broken_contracts(toy) == set()


@pytest.mark.parametrize(
    ("file", "planted", "contract"),
    [
        ("crypto/masks.py", "import protocols", "Imports only fall"),
        ("algorithms/fed_avg.py", "import audits.report", "Imports only fall"),
        ("audits/report.py", "import secure_fgl", "Imports only fall"),
        ("algorithms/fed_avg.py", "import crypto.masks", "An algorithm holds no cryptography"),
        (
            "protocols/messages.py",
            "def f():\n    from urllib.request import urlopen",
            "The lower floors know no network, clock, process or global chance",
        ),
        (
            "crypto/masks.py",
            "import torch",
            "Protocols and cryptography hold numpy arrays and bytes only",
        ),
    ],
)
def test_a_planted_import_breaks_its_contract(
    toy: Path, file: str, planted: str, contract: str
) -> None:
    with (toy / file).open("a", encoding="utf-8") as target:
        target.write(planted + "\n")
    broken = broken_contracts(toy)
    assert contract in broken
    if not planted.startswith("import audits"):  # that one reaches the clock through the audits
        assert broken == {contract}


# --- the frame --------------------------------------------------------------------------------


def test_the_root_listing_is_the_floor_plan() -> None:
    tracked = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."}
    holding_python = {name for name in tracked if next((ROOT / name).rglob("*.py"), None)}
    assert set(FLOORS) <= holding_python
    assert holding_python <= {*SOURCES, "tests", "docs", "build", "runs"}


@pytest.mark.parametrize("floor", FLOORS)
def test_each_floor_is_typed(floor: str) -> None:
    assert (ROOT / floor / "py.typed").read_bytes() == b""


def test_every_tool_is_told_of_every_floor() -> None:
    tools = PYPROJECT["tool"]
    assert set(tools["hatch"]["build"]["targets"]["wheel"]["packages"]) == set(FLOORS)
    assert set(tools["importlinter"]["root_packages"]) == set(FLOORS)
    assert set(tools["mypy"]["files"]) >= set(FLOORS)
    (layers,) = (c for c in tools["importlinter"]["contracts"] if c["type"] == "layers")
    assert tuple(layers["layers"]) == FLOORS


def test_every_dependency_is_pinned_within_its_range() -> None:
    pins = freeze.pinned((ROOT / "constraints.txt").read_text("utf-8"))
    for wanted in freeze.declared(ROOT):
        assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), wanted


def test_the_closure_follows_dependencies_and_names_what_is_missing() -> None:
    (declared,) = (one for one in freeze.declared(ROOT) if one.name == "jinja2")
    assert set(freeze.closure([declared])) == {"jinja2", "markupsafe"}
    declared.name = "no-such-distribution"
    with pytest.raises(RuntimeError, match="no-such-distribution is required"):
        freeze.closure([declared])


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text("utf-8")
    decisions = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert re.findall(r"\]\((\d{4}-[a-z-]+\.md)\)", index) == decisions
    assert [name[:4] for name in decisions] == [f"{n:04}" for n in range(1, len(decisions) + 1)]
