"""Docstrings and cells of tables as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

_HEADS = {
    "Args": "Arguments",
    "Attributes": "Attributes",
    "Raises": "Raises",
    "Returns": "Returns",
    "Yields": "Yields",
    "Example": "Example",
    "Examples": "Examples",
}
_SECTION = re.compile(rf"^({'|'.join(_HEADS)}):$")
_NAMED = re.compile(r"^(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*): (.*)$")
_ROLE = re.compile(r":\w+:`~?([^`]+)`")


def plain(text: str) -> str:
    """Return a docstring's words with code marked as Markdown marks it."""
    return _ROLE.sub(r"`\1`", text).replace("``", "`")


def cell(text: object) -> str:
    """Return a text for a cell of a table: one line, its bars and angles harmless."""
    line = " ".join(str(text).split()).replace("|", "\\|")
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(
        one if one.startswith("`") else one.replace("<", "&lt;").replace("*", "\\*")
        for one in parts
    )


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of Markdown, or a word that it would have no row."""
    lines = [" | ".join(cell(one) for one in row) for row in rows]
    if not lines:
        return "Nothing.\n"
    return (
        "\n".join(
            f"| {one} |" for one in (" | ".join(head), " | ".join("---" for _ in head), *lines)
        )
        + "\n"
    )


def markdown(docstring: str | None) -> str:
    """Return a docstring of Google's style as Markdown.

    Args:
        docstring: as written; None gives an empty text.

    Returns:
        Paragraphs as they are, literal blocks as code, sections as a word in bold and a list.
    """
    lines = inspect.cleandoc(docstring or "").splitlines()
    out: list[str] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        found = _SECTION.match(line)
        body, after = _indented(lines, number + 1)
        if found and body:
            out += ["", f"**{_HEADS[found[1]]}**", "", *_items(body), ""]
            number = after
        elif line.rstrip().endswith("::") and body:
            out += [plain(line.rstrip()[:-1]), "", "```python", *body, "```", ""]
            number = after
        else:
            out.append(plain(line))
            number += 1
    return "\n".join(out).strip() + "\n"


def attributes(docstring: str) -> tuple[str, dict[str, str]]:
    """Return a class's docstring without its attributes, and what it says of each by name."""
    lines = inspect.cleandoc(docstring).splitlines()
    if "Attributes:" not in lines:
        return plain("\n".join(lines)), {}
    start = lines.index("Attributes:")
    body, after = _indented(lines, start + 1)
    said: dict[str, str] = {}
    for line in _items(body):
        names, _, text = line.removeprefix("* ").partition(": ")
        said |= dict.fromkeys(names.strip("`").split(", "), text)
    return plain("\n".join([*lines[:start], *lines[after:]]).strip()), said


def _indented(lines: list[str], start: int) -> tuple[list[str], int]:
    """Return the indented lines from a place on, without their indent, and where they end."""
    end = start
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith("  ")):
        end += 1
    body = lines[start:end]
    return inspect.cleandoc("\n" + "\n".join(body)).splitlines(), end


def _items(body: list[str]) -> list[str]:
    """Return the entries of a section as a list; a line that goes on belongs to the entry above."""
    items: list[str] = []
    for line in body:
        found = _NAMED.match(line)
        if found:
            items.append(f"* `{found[1]}`: {plain(found[2])}")
        elif items and line.startswith(" "):
            items[-1] += f" {plain(line.strip())}"
        else:
            items.append(plain(line) if not items else f"\n{plain(line)}")
    return items
