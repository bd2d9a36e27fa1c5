"""A folder as a registry: one member per file, found by its name."""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import ModuleType

__all__ = ["member_names", "members", "offering", "unknown"]

Files = Mapping[str, ModuleType]
_OFFERED: ContextVar[Mapping[str, Files]] = ContextVar("files from outside the folders")


@contextmanager
def offering(files: Mapping[str, Files]) -> Iterator[None]:
    """Let files from outside be members of packages, by package and name; ours give way to none."""
    before = _OFFERED.set(files)
    try:
        yield
    finally:
        _OFFERED.reset(before)


def member_names(package: ModuleType) -> tuple[str, ...]:
    """Names of the files of a package, sorted, without importing them; `_private` ones left out."""
    return tuple(sorted({*_own(package), *_offered(package)}))


def members(package: ModuleType) -> dict[str, ModuleType]:
    """All files of a package, imported, by name."""
    ours = {name: import_module(f"{package.__name__}.{name}") for name in sorted(_own(package))}
    return {**_offered(package), **ours}


def _own(package: ModuleType) -> set[str]:
    found = pkgutil.iter_modules(package.__path__)
    return {file.name for file in found if not file.name.startswith("_")}


def _offered(package: ModuleType) -> Files:
    return _OFFERED.get({}).get(package.__name__, {})


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that is not in the registry; its note names the nearest one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    error = ValueError(f"no {kind} is called {name!r}")
    if near:
        error.add_note(f"What to do: did you mean {near[0]!r}?")
    elif len(names) > _MOST_NAMED:
        error.add_note(f"What to do: choose one of: secure-fgl list {kind.replace(' ', '')}s")
    else:
        error.add_note(f"What to do: known are: {', '.join(names) or '-'}")
    return error


_MOST_NAMED = 20
"""So many names are listed in an error; data sets are more, and have a list of their own."""
