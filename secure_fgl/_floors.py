"""The guard: every floor is imported from this installation, or nothing runs.

The floors are top-level packages with generic names. A stranger's package called ``crypto`` that
stands earlier on the import path would replace our masks without a word: totals would still come
out right while payloads left in clear (docs/adr/0002-five-floors.md). `check` runs before
`secure_fgl` imports anything of ours, and again when a run begins. Each time it looks at

- where every floor comes from. It then imports them all, so that modules are found below these
  packages from then on, whatever becomes of ``sys.path``;
- every module of ours that is loaded: from its own file, by Python's own loader for source, with no
  second folder to draw modules from;
- every module that stands where plug-ins stand: it is one that `secure_fgl.plugins` made of bytes
  whose digest the plan names.

It does not read the text of files: a person who can write into the installation can change them.
Other packages, and what code in this process does on purpose, it does not see either. Uploads
without masks are noticed besides, by `protocols.disclosures.sum.masks`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

__all__ = ["FLOORS", "PLUGINS", "NotOurCode", "approve", "check", "check_plugin", "disown"]

FLOORS = ("crypto", "protocols", "algorithms", "audits")
"""The floors below `secure_fgl`, from the ground up."""

_ALL = (*FLOORS, "secure_fgl")
PLUGINS = "secure_fgl_plugins"
"""Below this name stand the modules of plug-ins, and nothing that an import finds."""

_plugins: dict[str, ModuleType] = {}  # modules that `secure_fgl.plugins.loading` made


class NotOurCode(ImportError):
    """Code that is not ours stands where ours should."""


def check() -> None:
    """Refuse to go on unless all five floors come from this installation; imports them.

    Raises:
        NotOurCode: a floor is missing, incomplete or somebody else's. The message names
            what was expected and what was found, and says what to do.
    """
    house = Path(__file__).resolve().parent.parent
    for floor in FLOORS:
        expected = house / floor
        folders, file = _origin(floor)
        # A folder beside ours in the same namespace could add or replace modules: exactly one.
        if folders != [expected] or file != expected / "__init__.py":
            raise _refusal(floor, expected, [*folders, *([file] if file else [])])
    import algorithms  # noqa: F401
    import audits  # noqa: F401
    import crypto  # noqa: F401
    import protocols  # noqa: F401

    _check_modules(house)


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


def _check_modules(house: Path) -> None:
    """Look where every loaded module of ours came from."""
    real, root = cache(os.path.realpath), f"{house}{os.sep}"  # of folders, for this one check
    # Copied as a whole: a list of pairs makes objects, so garbage is collected, which may import.
    for name, module in sys.modules.copy().items():
        floor = name.partition(".")[0]
        if floor == PLUGINS:
            check_plugin(module, name)
        if floor in _ALL and (why := _strange(root, name, module, real)):
            raise NotOurCode(
                f"Secure-FGL refuses to go on: module {name!r} is not our own.\n"
                f"  expected: {house.joinpath(*name.split('.'))}\n"
                f"  found:    {why}\n"
                "Likely cause: another package, an import hook or a test put it there. Code from "
                "there would run in place of our protections.\n"
                "What to do: start again in a virtual environment of Secure-FGL's own; use nothing "
                "of what this process has written.",
                name=name,
            )


def approve(module: ModuleType) -> None:
    """Let a plug-in's module pass; for `secure_fgl.plugins.loading` alone, which made it."""
    _plugins[module.__name__] = module


def disown(module: ModuleType) -> None:
    """Let a plug-in's module pass no longer."""
    _plugins.pop(module.__name__, None)


def check_plugin(module: ModuleType, name: str = "") -> None:
    """Raise NotOurCode unless a module that stands where plug-ins stand is one that was named."""
    name = name or module.__name__
    if _plugins.get(name) is not module:
        raise NotOurCode(
            f"Secure-FGL refuses to go on: module {name!r} is no plug-in that was named.\n"
            f"  expected: a file that a configuration or --plugin names\n"
            f"  found:    {getattr(module, '__file__', None) or 'a module that no file made'}\n"
            "Likely cause: another package, an import hook or a test put it there.\n"
            "What to do: start again in a virtual environment of Secure-FGL's own; use nothing of "
            "what this process has written.",
            name=name,
        )


def _strange(root: str, name: str, module: ModuleType, real: Callable[[str], str]) -> str:
    """Say what is strange about a loaded module; nothing if it is ours.

    A path that is spelled as ours needs no look at the disk.
    """
    spec, place = getattr(module, "__spec__", None), root + name.replace(".", os.sep)
    if spec is None or spec.name != name:
        return "a module that no import made"
    if type(spec.loader) is not SourceFileLoader:
        return f"a module that {type(spec.loader).__name__} made"
    package = hasattr(module, "__path__")
    wanted = os.path.join(place, "__init__.py") if package else f"{place}.py"
    files = (spec.origin, spec.loader.path, getattr(module, "__file__", None))
    for file in dict.fromkeys(files):  # all three are one, as a rule
        if file != wanted:
            folder, base = os.path.split(file or "")
            if os.path.join(real(folder), base) != wanted:
                return str(file)
    if not package:
        return ""
    folders = list(module.__path__)
    strangers = [folder for folder in folders if folder != place and real(folder) != place]
    return ", ".join(strangers) or ("" if len(folders) == 1 else "several folders")


def _refusal(floor: str, expected: Path, found: list[Path]) -> NotOurCode:
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
        return NotOurCode(message, name=floor, path=str(intruder))
    message = (
        f"Secure-FGL refuses to start: its floor {floor!r} is missing or incomplete.\n"
        f"  expected: {expected / '__init__.py'}\n"
        "Likely cause: an interrupted or partial installation.\n"
        "What to do: install Secure-FGL again (`make setup` in a checkout)."
    )
    return NotOurCode(message, name=floor, path=str(expected))
