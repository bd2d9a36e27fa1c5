"""A folder as a registry: one member per file, found by its name."""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

__all__ = ["member_names", "members", "unknown"]


def member_names(package: ModuleType) -> tuple[str, ...]:
    """Names of the files of a package, sorted, without importing them; `_private` ones left out."""
    return tuple(
        sorted(
            found.name
            for found in pkgutil.iter_modules(package.__path__)
            if not found.name.startswith("_")
        )
    )


def members(package: ModuleType) -> dict[str, ModuleType]:
    """All files of a package, imported, by name."""
    return {name: import_module(f"{package.__name__}.{name}") for name in member_names(package)}


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that is not in the registry; it names the nearest one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return ValueError(f"no {kind} is called {name!r}; {hint}known are: {', '.join(names) or '-'}")
