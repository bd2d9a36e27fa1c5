"""The start-up guard: each floor must be ours, or nothing runs.

The floors are top-level packages with generic names. A stranger's package called ``crypto``
that stands earlier on the import path would replace our masks without a word: totals would still
come out right while payloads left in clear (docs/adr/0002-five-floors.md). So
`secure_fgl/__init__.py` calls `check` before it imports any floor.

What the guard cannot see is a file overwritten *inside* our own folders. That is the installer's
matter: install from hash-locked requirements, into an environment of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

FLOORS = ("crypto", "protocols", "algorithms", "audits")
"""The floors below `secure_fgl`, from the ground up."""


def check() -> None:
    """Refuse to start unless every floor lies beside the folder of this package.

    A floor that is already imported is judged by where it was loaded from; one that is not, by
    where an import would find it. No floor is imported here.

    Raises:
        ImportError: A floor is missing, incomplete, or somebody else's. The message names the
            path expected and the path found, and says what to do.
    """
    house = Path(__file__).resolve().parent.parent
    for floor in FLOORS:
        expected = house / floor
        folders, file = _origin(floor)
        # A folder beside ours in the same namespace could add or replace modules: exactly one.
        if folders != [expected] or file != expected / "__init__.py":
            raise _refusal(floor, expected, [*folders, *([file] if file else [])])


def _origin(floor: str) -> tuple[list[Path], Path | None]:
    """The folders that `floor` draws its modules from, and the file that it starts with."""
    loaded = sys.modules.get(floor)
    if loaded is not None:
        return _resolve(getattr(loaded, "__path__", None), getattr(loaded, "__file__", None))
    spec = find_spec(floor)
    if spec is None:
        return [], None
    # A namespace package has no file; "built-in" and "frozen" are origins but not places.
    return _resolve(spec.submodule_search_locations, spec.origin if spec.has_location else None)


def _resolve(folders: Iterable[str] | None, file: str | None) -> tuple[list[Path], Path | None]:
    """Follow links, so that an installation reached through a link is still recognised."""
    opening = Path(file).resolve() if file else None
    return [Path(folder).resolve() for folder in folders or ()], opening


def _refusal(floor: str, expected: Path, found: list[Path]) -> ImportError:
    strangers = [path for path in found if path != expected and expected not in path.parents]
    if strangers:
        intruder = strangers[0]
        message = (
            f"Secure-FGL refuses to start: `import {floor}` would not load our own package.\n"
            f"  expected: {expected}\n"
            f"  found:    {', '.join(map(str, strangers))}\n"
            "Likely cause: another distribution or folder called "
            f"{floor!r} stands earlier on the import path, or was imported before secure_fgl. "
            "Code from there would run in place of our protections.\n"
            "What to do: install Secure-FGL into a virtual environment of its own, and take the "
            "path found above out of PYTHONPATH or remove the distribution that put it there."
        )
        return ImportError(message, name=floor, path=str(intruder))
    message = (
        f"Secure-FGL refuses to start: its floor {floor!r} is missing or incomplete.\n"
        f"  expected: {expected / '__init__.py'}\n"
        "Likely cause: an interrupted or partial installation.\n"
        "What to do: install Secure-FGL again (`make setup` in a checkout)."
    )
    return ImportError(message, name=floor, path=str(expected))
