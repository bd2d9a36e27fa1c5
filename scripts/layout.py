"""Rules on the tree as a whole: no circle of imports, and registries that hold their members alone.

`scripts.house_rules` prints what they find with the rest.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from scripts.source import Finding

REGISTRIES = {
    "algorithms",
    "algorithms/nn",
    "audits/attacks",
    "secure_fgl/cli",
    "secure_fgl/data/partitions",
    "secure_fgl/data/sources",
}
"""Folders with one file a member, as many as there are; what members share lies in `_shared`."""


def findings(files: Mapping[str, str]) -> list[Finding]:
    """Return what a tree breaks.

    Args:
        files: text by path, relative to the root, with forward slashes.
    """
    return [*_circles(files), *_registries(files)]


def read(root: Path, folders: tuple[str, ...]) -> dict[str, str]:
    """Return the Python files under some folders of `root`, by path."""
    return {
        file.relative_to(root).as_posix(): file.read_text("utf-8")
        for folder in folders
        for file in sorted((root / folder).rglob("*.py"))
    }


def _circles(files: Mapping[str, str]) -> Iterator[Finding]:
    """Find one circle of imports, those for types alone and inside functions included."""
    modules = {_module(path): path for path in files}
    imports = {name: set(_imported(files[path], modules)) for name, path in modules.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        ring = [str(name) for name in reversed(error.args[1])]
        yield Finding(modules[ring[0]], 1, f"a circle of imports: {' > '.join(ring)}")


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(text: str, modules: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                name = whole if whole in modules else node.module
                if name in modules:
                    yield name


def _registries(files: Mapping[str, str]) -> Iterator[Finding]:
    for path in files:
        folder, _, name = path.rpartition("/")
        if folder in REGISTRIES and re.match(r"_(?!_|shared\.py$)", name):
            yield Finding(path, 1, f"{folder}/ holds members alone: put it into _shared/")
