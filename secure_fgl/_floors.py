"""The guard: every floor is ours and stays what it was, or nothing runs.

The floors are top-level packages with generic names. A stranger's package called ``crypto`` that
stands earlier on the import path would replace our masks without a word: totals would still come
out right while payloads left in clear (docs/adr/0002-five-floors.md). `check` runs before
`secure_fgl` imports anything of ours, when a run begins, before its result is written, and when an
audit begins. Each time it looks at

- where every floor comes from. It then imports them all, so that modules are found below these
  packages from then on, whatever becomes of ``sys.path``;
- every file in our five folders. Installed from a wheel they must be what its ``RECORD`` lists, and
  nothing beside; later checks, and all checks of a checkout, hold them against the first one;
- every module of ours that is loaded: from its own file, by Python's own loader for source, with no
  second folder to draw modules from;
- every module that stands where plug-ins stand: it is one that `secure_fgl.plugins.loading` made of
  bytes whose digest the plan names. Their text is not ours, and nothing is said of it here.

What it cannot see: whoever may write into the installation can write a fitting ``RECORD``, and a
checkout has none at all, so what was changed before the first check passes there. Compiled files
(``__pycache__``) are not looked at, nor are other packages, nor is anything that code in this very
process does on purpose (a replaced function, a file put back in time). Uploads without masks are
noticed besides, by `protocols.disclosures.sum.masked.uniform`.
"""

from __future__ import annotations

import csv
import os
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import sha256
from importlib import metadata
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

_CACHE = "__pycache__"
_plugins: dict[str, ModuleType] = {}  # modules that `secure_fgl.plugins.loading` made
_first: dict[str, str] = {}  # digest of every file at the first check


class NotOurCode(ImportError):
    """Code that is not ours stands where ours should, or ours was changed."""


def check() -> None:
    """Refuse to go on unless all five floors are ours, complete and unchanged; imports them.

    Raises:
        NotOurCode: a floor is missing, incomplete, changed or somebody else's. The message names
            what was expected and what was found, and says what to do.
    """
    house = Path(__file__).resolve().parent.parent
    for floor in FLOORS:
        expected = house / floor
        folders, file = _origin(floor)
        # A folder beside ours in the same namespace could add or replace modules: exactly one.
        if folders != [expected] or file != expected / "__init__.py":
            raise _refusal(floor, expected, [*folders, *([file] if file else [])])
    _check_files(house)
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


def _check_files(house: Path) -> None:
    """Hold every file of ours against the wheel's RECORD at first, and against that check later."""
    found = _digests(house)
    known = _first or _recorded(house)
    if known is not None:
        for name in sorted(known.keys() | found.keys()):
            if known.get(name) != found.get(name):
                raise _changed(house / name, expected=name in known, there=name in found)
    _first.update(found)


def _digests(house: Path) -> dict[str, str]:
    """Return the digest of every file in our folders, as a RECORD writes it, by path.

    Compiled files are left out, and hidden ones: no module's name begins with a dot.
    """
    found: dict[str, str] = {}
    for floor in _ALL:
        for folder, inner, files in os.walk(house / floor):
            inner[:] = [name for name in inner if name != _CACHE and name[0] != "."]
            for name in inner:
                if os.path.islink(place := os.path.join(folder, name)):
                    raise _changed(Path(place), expected=False, there=True)
            for name in files:
                if name[0] != ".":
                    place = os.path.join(folder, name)
                    with open(place, "rb") as file:
                        digest = urlsafe_b64encode(sha256(file.read()).digest())
                    key = place[len(str(house)) + 1 :].replace(os.sep, "/")
                    found[key] = f"sha256={digest.decode().rstrip('=')}"
    return found


def _recorded(house: Path) -> dict[str, str] | None:
    """Return what the RECORD of our own wheel says of our folders; None in a checkout."""
    installed = list(metadata.distributions(name="secure-fgl", path=[str(house)]))
    if not installed:
        return None
    rows = csv.reader((installed[0].read_text("RECORD") or "").splitlines())
    listed = {row[0]: row[1] for row in rows if len(row) > 1}
    ours = {
        name: digest
        for name, digest in listed.items()
        if name.partition("/")[0] in _ALL and _CACHE not in name.split("/")
    }
    if len(installed) > 1 or "secure_fgl/_floors.py" not in ours:
        raise NotOurCode(
            "Secure-FGL refuses to start: its installation has no record of its own files.\n"
            f"  expected: one distribution 'secure-fgl' with its RECORD in {house}\n"
            "Likely cause: an interrupted installation, or two on top of each other.\n"
            "What to do: install Secure-FGL again, into a virtual environment of its own.",
            name="secure_fgl",
            path=str(house),
        )
    return ours


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

    A path that is spelled as ours needs no look at the disk: `root` has no link in it, and that
    there is none below it was seen when the files were looked at.
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


def _changed(file: Path, *, expected: bool, there: bool) -> NotOurCode:
    what = "does not belong there" if not expected else "was changed" if there else "is missing"
    if _first:
        when = "go on: its files changed while it ran"
        fix = "start again once nobody edits or installs them; what this process made is no result."
    else:
        when = "start: its files are not those that were installed"
        fix = "install Secure-FGL again, into a virtual environment of its own."
    return NotOurCode(
        f"Secure-FGL refuses to {when}.\n"
        f"  found:    {file} {what}\n"
        "Likely cause: another distribution was installed over ours, or somebody edited the file. "
        "Code from there would run in place of our protections.\n"
        f"What to do: {fix}",
        path=str(file),
    )
