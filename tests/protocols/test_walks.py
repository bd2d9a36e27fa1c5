"""The walks of protocols/README.md are those of the code: the order in which files are entered."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from secure_fgl.federation import Federation
from tests.laws.runs import config
from tests.protocols.matched import matched_round, matching

pytestmark = pytest.mark.usefixtures("kept_state")

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT.joinpath("protocols", "README.md").read_text("utf-8")
MOST_LINES = 15


def update(folder: Path) -> None:
    Federation.from_config(config("fed_avg", "he", rounds=1)).run(folder / "run")


def tag(folder: Path) -> None:
    matched_round(matching(mode="oprf").start())


WALKS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "One update, from training to the opened total": (update, "algorithms/fed_avg.py", "train"),
    "One item tag, from the client to its cell": (
        tag,
        "protocols/disclosures/match/disclosure.py",
        "body",
    ),
}


def listed(title: str) -> list[str]:
    """Return the files that a walk names, in order."""
    part = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`: ", part, re.MULTILINE)


@contextmanager
def entered(first: str, function: str, wanted: set[str]) -> Iterator[list[str]]:
    """Note which files are entered for the first time, from a function on until all wanted were."""
    found: list[str] = []
    root = f"{ROOT}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(root):
            return
        file = name.removeprefix(root)
        if not found and (file, frame.f_code.co_name) != (first, function):
            return
        if file in wanted and file not in found:
            found.append(file)
            if len(found) == len(wanted):
                sys.setprofile(None)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_enters_the_files_that_the_page_names_in_their_order(
    title: str, tmp_path: Path
) -> None:
    run, first, function = WALKS[title]
    files = listed(title)
    assert 10 <= len(files) == len(set(files)) <= MOST_LINES
    with entered(first, function, set(files)) as found:
        run(tmp_path)
    assert found == files


def test_the_page_has_both_walks_and_no_other() -> None:
    titles = re.findall(r"^## (One .*)$", PAGE, re.MULTILINE)
    assert titles == list(WALKS)


def test_the_page_says_where_every_folder_is_asked_for() -> None:
    folders = {p.parent.name for p in ROOT.glob("protocols/*/__init__.py")}
    table = PAGE.partition("## Where do I find")[2].partition("\n## ")[0]
    missing = {folder for folder in folders if f"`{folder}/" not in table}
    assert folders >= {"disclosures", "wire"}
    assert not missing
