"""The list of faults: how it is read, and how one of them is planted in a tree.

A fault is found by its text and not by its path, so that files may move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.house_rules import FLOORS

__all__ = ["BadList", "Fault", "plant", "read_faults", "read_tests", "sources"]

FOLDER = Path(__file__).resolve().parent
_MEMBERS = {"id", "obligations", "wrong", "find", "replace"}


class BadList(Exception):
    """The list of faults, or of tests that find them, does not fit the tree."""


@dataclass(frozen=True)
class Fault:
    """One mistake that may be made.

    Attributes:
        id: its name.
        obligations: what no longer holds: ``O1`` to ``O31``, or short names of laws.
        wrong: what goes wrong, and for whom.
        find: text that stands in exactly one file of the floors, once.
        replace: what stands there instead.
    """

    id: str
    obligations: tuple[str, ...]
    wrong: str
    find: str
    replace: str


def read_faults(file: Path = FOLDER / "faults.yaml") -> tuple[Fault, ...]:
    """Return all faults in the order of the list; raises BadList."""
    found = []
    for entry in _loaded(file, list):
        if not isinstance(entry, dict) or set(entry) != _MEMBERS:
            raise BadList(f"{file.name}: an entry does not hold just {', '.join(sorted(_MEMBERS))}")
        texts = [entry[name] for name in ("id", "wrong", "find", "replace")]
        if not all(isinstance(text, str) for text in texts) or not isinstance(
            entry["obligations"], list
        ):
            raise BadList(f"{file.name}: {entry['id']}: a member is of another kind")
        found.append(Fault(**{**entry, "obligations": tuple(entry["obligations"])}))
    return tuple(found)


def read_tests(file: Path = FOLDER / "found_by.yaml") -> Mapping[str, tuple[str, ...]]:
    """Return by fault the tests (pytest's node ids) that are tried first; raises BadList."""
    return {name: tuple(tests) for name, tests in _loaded(file, dict).items()}


def _loaded(file: Path, kind: type) -> Any:
    found = yaml.safe_load(file.read_text("utf-8"))
    if not isinstance(found, kind):
        raise BadList(f"{file.name} holds no {kind.__name__}")
    return found


def sources(root: Path) -> dict[Path, str]:
    """Return every Python file of the five floors below `root`, with its text."""
    files = (file for floor in FLOORS for file in sorted((root / floor).rglob("*.py")))
    return {file: file.read_text("utf-8") for file in files}


def plant(fault: Fault, texts: Mapping[Path, str]) -> tuple[Path, str]:
    """Return the one file that holds a fault's text, and what it holds once the fault is planted.

    Args:
        fault: of the list.
        texts: of :func:`sources`.

    Raises:
        BadList: no file holds the text, several do, or one more than once.
    """
    places = [file for file, text in texts.items() for _ in range(text.count(fault.find))]
    if len(places) != 1:
        raise BadList(f"{fault.id}: its text stands in {_listed(places)}, not in exactly one place")
    (file,) = places
    return file, texts[file].replace(fault.find, fault.replace)


def _listed(places: Iterable[Path]) -> str:
    return ", ".join(file.as_posix() for file in places) or "no file"
