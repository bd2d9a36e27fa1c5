"""One Python file as the house rules see it, and what they say about it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

Remark = tuple[int, str]


@dataclass(frozen=True)
class Finding:
    """One broken rule: where, and what to do about it."""

    path: str
    line: int
    remark: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.remark}"


class Source:
    """One parsed file, with what each of its names stands for."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text, filename=path)
        self.nodes = list(ast.walk(self.tree))
        self.imports = list(self._imports())
        self._origin = {local: origin for _, local, origin in self.imports}

    def _imports(self) -> Iterator[tuple[int, str, str]]:
        """Yield (line, local name, dotted origin) of each import, relative ones made absolute."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    local = alias.asname or alias.name.partition(".")[0]
                    yield node.lineno, local, alias.name if alias.asname else local
                    if not alias.asname and local != alias.name:
                        yield node.lineno, alias.name, alias.name
            elif isinstance(node, ast.ImportFrom):
                package = PurePosixPath(self.path).parts[: -node.level] if node.level else ()
                base = ".".join([*package, *([node.module] if node.module else [])])
                for alias in node.names:
                    yield node.lineno, alias.asname or alias.name, f"{base}.{alias.name}"

    def dotted(self, node: ast.AST) -> str | None:
        """Return what a name or a chain of attributes stands for, as `package.module.name`."""
        if isinstance(node, ast.Name):
            return self._origin.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return None if base is None else f"{base}.{node.attr}"
        return None

    def mentions(self) -> Iterator[tuple[int, str]]:
        """Yield (line, what it stands for) of every name, attribute chain and import."""
        for node in self.nodes:
            if isinstance(node, (ast.Name, ast.Attribute)) and (name := self.dotted(node)):
                yield node.lineno, name
        for line, _, origin in self.imports:
            yield line, origin

    def names(self) -> Iterator[tuple[int, str]]:
        """Yield (line, name) of all that this file names: modules, classes, functions, values."""
        for node in self.nodes:
            if isinstance(node, ast.Name):
                yield node.lineno, node.id
            elif isinstance(node, ast.Attribute):
                yield node.lineno, node.attr
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield node.lineno, node.name
            elif isinstance(node, (ast.arg, ast.keyword)) and node.arg:
                yield node.lineno, node.arg
        yield 1, PurePosixPath(self.path).stem
