"""One plug-in: a file's bytes as they were read, before anything of them is run."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from secure_fgl.errors import UsageError
from secure_fgl.store.files import content

__all__ = ["LARGEST", "NAME", "NOUNS", "Kind", "Plugin", "check_no_folder", "needless", "read"]

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
"""Names of plug-ins: a file's without its ending, and an entry point's."""

LARGEST = 1 << 20
"""Bytes of a plug-in; ours have some thousand."""

_SHOWN = 5  # broken rules in one error


class Kind(StrEnum):
    """What a plug-in offers, and in which registry it stands beside ours."""

    ALGORITHM = "algorithm"
    MODEL = "model"
    DATA = "data"
    PARTITION = "partition"


_OFFERS: dict[Kind, tuple[set[str], ...]] = {
    Kind.ALGORITHM: ({"ALGORITHM"},),
    Kind.MODEL: ({"NAME", "TASK", "build"},),
    Kind.DATA: ({"NAMES", "describe", "load"},),
    Kind.PARTITION: ({"KINDS", "assign"}, {"KINDS", "cut"}),
}
"""By which names at its top a file is of a kind: one of the sets, whole."""

NOUNS = ("protocols.messages", "protocols.rounds", "protocols.forms")
"""All that an algorithm may know of `protocols` (docs/adr/0001-one-door.md)."""

_USES = (
    *("__future__", "abc", "collections", "dataclasses", "difflib", "functools", "hashlib"),
    *("itertools", "math", "typing", "warnings"),
    *("numpy", "opacus", "scipy", "torch", "torch_geometric", "algorithms", *NOUNS),
)
"""Modules that an algorithm or a model needs, each with those below it."""

_OURS = {Kind.DATA: ("algorithms.tasks", "secure_fgl.data"), Kind.PARTITION: ("secure_fgl.data",)}
"""Modules of ours that a file of data or a partition needs; of others it may use what it likes."""

_FLOORS = {"algorithms", "audits", "crypto", "protocols", "secure_fgl"}


@dataclass(frozen=True)
class Plugin:
    """A plug-in that was read and not run.

    Attributes:
        name: the file's, without its ending; also the entry point's.
        kind: what it offers.
        file: where it was read.
        source: its bytes; these are run, whatever becomes of the file.
    """

    name: str
    kind: Kind
    file: Path = field(compare=False)
    source: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of its bytes; it stands in the plan."""
        return hashlib.sha256(self.source).hexdigest()


def check_no_folder(given: Path) -> None:
    """Raise UsageError where a folder was given in the place of a plug-in's file."""
    if not given.is_dir():
        return
    files = sorted(file.name for file in given.glob("*.py"))
    raise UsageError(
        f"{given} is a folder, and no plug-in.",
        why="a plug-in is one Python file",
        fix=f"give its file: --plugin {given / (files[0] if files else 'NAME.py')}",
    )


def read(file: Path) -> Plugin:
    """Read a plug-in and look at its text; nothing of it is run.

    Raises:
        UsageError: it cannot be read, is no Python, offers nothing or several things, or reaches
            what a plug-in has no use for.
    """
    name = file.name.removesuffix(".py")
    check_no_folder(file)
    if file.suffix != ".py" or not NAME.fullmatch(name):
        raise UsageError(
            f"{file} cannot be a plug-in by its name.",
            why="a plug-in's name is its file's: small letters, digits and _, then .py",
            fix="rename the file, for example my_fedprox.py",
        )
    try:
        source = content(file, LARGEST)
    except OSError as error:
        raise UsageError(
            f"The plug-in {file} cannot be read ({error.strerror}).",
            why="it is not there, or is no plain file; paths begin at the folder you stand in",
            fix="give the path of one Python file, for example --plugin my_fedprox.py",
        ) from error
    if source is None:
        raise UsageError(f"The plug-in {file} is larger than a plug-in can be (1 MB).")
    tree = _parsed(file, source)
    kind = _kind(file, tree)
    _warn(file, kind, tree)
    return Plugin(name, kind, file.resolve(), source)


def _parsed(file: Path, source: bytes) -> ast.Module:
    try:
        return ast.parse(source.decode("utf-8"), filename=file.name)
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else ""
        raise UsageError(
            f"The plug-in {file} is no Python text{line}.",
            why="it cannot be parsed, or is not in UTF-8",
            fix=f"correct it; python -m py_compile {file.name} says the same",
        ) from error


def _kind(file: Path, tree: ast.Module) -> Kind:
    names = set(_top(tree))
    found = [k for k, sets in _OFFERS.items() if any(one <= names for one in sets)]
    if len(found) == 1:
        return found[0]
    offers = "; ".join(f"{kind}: {', '.join(sorted(sets[0]))}" for kind, sets in _OFFERS.items())
    if not found:
        raise UsageError(
            f"The plug-in {file} offers nothing: it has no ALGORITHM, and no model or data.",
            why=f"a kind is told by the names at the file's top ({offers})",
            fix="end an algorithm's file with ALGORITHM = your_function; docs/own-algorithm.md "
            "writes one",
        )
    raise UsageError(
        f"The plug-in {file} offers several things: {', '.join(found)}.",
        why="a plan names each plug-in with one kind and one digest",
        fix="put each of them into a file of its own",
    )


def _top(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a file binds at its top."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = (part for target in targets for part in ast.walk(target))
            yield from (part.id for part in parts if isinstance(part, ast.Name))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)


def _warn(file: Path, kind: Kind, tree: ast.Module) -> None:
    """Raise UsageError for modules that a plug-in imports and has no use for."""
    found = [f"line {line}: {name}" for line, name in needless(kind, tree)]
    if not found:
        return
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    whose = {Kind.ALGORITHM: "an algorithm", Kind.DATA: "a data set"}.get(kind, f"a {kind}")
    known = f"of ours {' and '.join(_OURS[kind])}" if kind in _OURS else ", ".join(_USES)
    shown = "; ".join(found[:_SHOWN]) + more
    raise UsageError(
        f"The plug-in {file} imports what {whose} has no use for: {shown}.",
        why=f"{whose} needs {known}",
        fix="take it out. This rule reads imports alone: it is a warning to the author of the file "
        "and no protection from them",
    )


def needless(kind: Kind, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of each import that a file of this kind has no use for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if not _needed(kind, name))


def _needed(kind: Kind, name: str) -> bool:
    if kind in _OURS and name.partition(".")[0] not in _FLOORS:
        return True
    return any(f"{name}.".startswith(f"{use}.") for use in _OURS.get(kind, _USES))
