"""Law: no change of a finished run or its bundle passes `audit verify` but where the page says so.

`python -m tests.laws.changing` makes all changes of the list; here some of the same list are made.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest

from audits.bundle.archive import unpack
from protocols.versions import FORMATS
from secure_fgl.store.finished_run import Run
from tests.laws.changing import (
    BUNDLE,
    CHANGED,
    DIGESTS,
    FOLDER,
    OTHERS,
    REMOVED,
    SEED,
    UNBOUND,
    UNREPORTED,
    Stage,
    changes,
    contents,
    finished,
    listing,
    named,
    of_bundle,
    of_folder,
    passes,
    rule,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
SOME, FEW = 100, 40
"""So many of the folder's changes, and of the bundle's, each of which is read whole."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return finished(tmp_path_factory.mktemp("changes"))


@pytest.fixture
def run(stage: Stage, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stage.run, tmp_path / "run"))


def test_the_lists_are_those_that_were_measured(stage: Stage) -> None:
    lists = {
        "folder": changes([*contents(stage.run)], FOLDER, SEED),
        "bundle": changes([*unpack(stage.bundle)], BUNDLE, SEED, bundle=True),
    }
    for name, found in lists.items():
        assert hashlib.sha256(listing(found).encode()).hexdigest() == DIGESTS[name], name


def test_no_change_of_a_run_passes_but_where_the_page_says_so(stage: Stage, run: Path) -> None:
    before, names = contents(run), [*contents(run)]
    found = changes(names, FOLDER, SEED)[:SOME]
    assert passes(run)
    passed = list(of_folder(run, stage.foreign, found))
    assert [str(one.change) for one in passed if not named(one, names)] == []
    bound = {"captured", "config.yaml", "checkpoints", "ledger", "heads"}
    assert not [one for one in passed if {p.split("/")[0] for p in one.paths} & bound]
    assert contents(run) == before and Run(run).verify().ok


def test_no_change_of_a_bundle_passes(stage: Stage) -> None:
    names = [*unpack(stage.bundle)]
    found = changes(names, BUNDLE, SEED, bundle=True)[:FEW]
    assert list(of_bundle(stage.bundle, stage.other_bundle, found)) == []


# --- the page names what is unbound, all of it and nothing else


def rows(heading: str) -> list[list[str]]:
    """Return the rows of the table that follows a text of the page."""
    text = PAGE.read_text("utf-8").split(heading)[1]
    table = re.search(r"\n\n(\|.*?)\n\n", text, re.DOTALL)
    assert table is not None
    lines = table[1].split("\n")[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_names_just_the_unbound_files_and_what_may_happen_to_them() -> None:
    told = {file.strip("`"): how for file, how in rows("What follows is **unbound**")}
    assert list(told) == list(UNBOUND)
    for file, how in told.items():
        assert how.startswith(UNBOUND[file]), file


def test_every_file_of_a_run_is_on_the_page(stage: Stage) -> None:
    text = ", ".join(row[0] for row in rows("any change of one fails:"))
    bound = {pattern.replace("<party>", "*") for pattern in re.findall("`(.*?)`", text)}
    for path in contents(stage.run):
        assert rule(path, [path]) or any(Path(path).match(pattern) for pattern in bound), path


@pytest.mark.parametrize("file", UNBOUND)
def test_what_the_page_calls_unbound_is_so(run: Path, file: str) -> None:
    """Else it would name a file that is bound."""
    path = run / {
        "report/*": "report/report.md",
        "budgets/*": "budgets/client-1.checkpoint",
        "private/*": "private/client-1/session",
        "models/*": "models/client-1/model",
        OTHERS: "notes/of-mine.txt",
    }.get(file, file)
    how = UNBOUND[file]
    if how == REMOVED:
        path.write_bytes(path.read_bytes() + b" ")
        assert not passes(run)  # the control: a change is none of what may happen
        path.unlink()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes() if path.exists() else b""
        changed = data.replace(b'"wall_s": ', b'"wall_s": 1') if file == "result.json" else b"{}"
        if file == "baseline.json":
            changed = data.replace(b'"low":""', b'"low":"0.1"', 1)
        assert changed != data
        path.write_bytes(changed)
        if how == UNREPORTED:
            assert not passes(run)
            shutil.rmtree(run / "report")
        else:
            assert how == CHANGED
    assert passes(run)


def test_the_page_tells_every_version() -> None:
    told = [(row[0].split(" (")[0].split(", "), row[1]) for row in rows("of each against it.")]
    for format in FORMATS:
        (number,) = [number for names, number in told if format.name in names]
        assert re.match(rf"{format.version}\b", number), format.name
