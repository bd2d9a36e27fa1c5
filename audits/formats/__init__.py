"""The ways to say a report, one file each, found by folder.

A format is a module with ``FORMAT`` (its name), ``FILES`` (the file names it writes) and
``render(report) -> {file name: bytes}``. Rendering is deterministic: equal reports, equal bytes.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from audits.report.models import Report

_MODULES: dict[str, ModuleType] = {
    found.name: import_module(f"{__name__}.{found.name}")
    for found in pkgutil.iter_modules(__path__)
    if not found.name.startswith("_")
}
FORMATS: tuple[str, ...] = tuple(sorted(module.FORMAT for module in _MODULES.values()))


def _module(name: str) -> ModuleType:
    for module in _MODULES.values():
        if name == module.FORMAT:
            return module
    raise ValueError(f"no report format is called {name[:20]!r}; known: {', '.join(FORMATS)}")


def file_names(name: str) -> tuple[str, ...]:
    """Return the file names that a format writes; raises ValueError for an unknown format."""
    return tuple(_module(name).FILES)


def render(report: Report, formats: Sequence[str]) -> dict[str, bytes]:
    """Return the files of a report.

    Args:
        report: from :func:`audits.report.build.build_report`.
        formats: of :data:`FORMATS`.

    Raises:
        ValueError: an unknown format.
    """
    files: dict[str, bytes] = {}
    for name in formats:
        files.update(_module(name).render(report))
    return files
