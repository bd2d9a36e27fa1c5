"""The report as people read it: sections of sentences, facts, tables and pictures.

A column has a kind, and the kind decides how its cells are written. The page, the Markdown text and
the spreadsheets are renderings of these same objects; see :mod:`audits.formats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from audits.attacks._shared.models import Value
from audits.report import words

Kind = Literal[
    "text", "words", "long", "fixed", "guard", "code", "digest", "state", "count", "size", "figure",
    "decimal", "epsilon", "share", "value", "raw",
]  # fmt: skip
NUMBERS = frozenset({"count", "size", "figure", "decimal", "epsilon", "value"})
OPEN_ROWS = 12  # a longer table of single rounds or kinds is folded
MISSING = "–"


class Code(str):
    """A command or a file name inside a sentence."""

    __slots__ = ()


class Unsafe(str):
    """Text that warns of something in clear or beyond the plan."""

    __slots__ = ()


class Lines(tuple[str, ...]):
    """A cell of several lines, the first of which is what it is about."""

    __slots__ = ()


@dataclass(frozen=True)
class Column:
    """A column: its title, and the kind of its cells."""

    title: str
    kind: Kind = "text"


@dataclass(frozen=True)
class Table:
    """Rows under typed columns.

    Attributes:
        title, note: the caption and what a reader must know of it.
        columns: the first one names the row.
        rows: cells, each of its column's kind.
        below: for each row the lines that stand under it across all columns; may be empty.
        label: its name among all tables of the page, where the title is not one.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[object, ...], ...]
    note: str = ""
    below: tuple[Lines, ...] = ()
    label: str = ""


@dataclass(frozen=True)
class Prose:
    """A paragraph; `style` is empty, ``big`` or ``muted``."""

    parts: tuple[str, ...]
    style: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Heading:
    """A heading below that of the section."""

    text: str
    id: str = ""


@dataclass(frozen=True)
class Facts:
    """Names and values; a value may be of several lines."""

    rows: tuple[tuple[str, str | Lines], ...]
    digest: bool = False


@dataclass(frozen=True)
class Figure:
    """A picture; the table that follows has its numbers."""

    caption: str
    picture: Markup


@dataclass(frozen=True)
class Folded:
    """Blocks that a reader of the page opens; Markdown and paper show them."""

    summary: str
    blocks: tuple[Block, ...]
    open: bool = False


Block = Table | Prose | Bullets | Heading | Facts | Figure | Folded


@dataclass(frozen=True)
class Section:
    """A section: its id, its name in the contents, the question it answers, and its blocks."""

    id: str
    name: str
    title: str
    blocks: tuple[Block, ...]


def columns(*specs: str) -> tuple[Column, ...]:
    """Return columns from texts such as ``Size|size``; without a kind they hold text."""
    made = []
    for spec in specs:
        title, _, kind = spec.partition("|")
        made.append(Column(title, kind or "text"))  # type: ignore[arg-type]
    return tuple(made)


def prose(*parts: str, style: str = "") -> Prose:
    """Return a paragraph of parts; of a :class:`Code` or :class:`Unsafe` part its look differs."""
    return Prose(parts, style)


def folded(table: Table, count: int, word: str, how: str = "one row each") -> Table | Folded:
    """Return a table, folded where it has many rows."""
    if count <= OPEN_ROWS:
        return table
    return Folded(f"{words.plural(count, word)}, {how}", (table,))


def text(kind: Kind, value: object) -> str:
    """Return a cell as plain text, by the kind of its column."""
    if value is None or (value == "" and kind in NUMBERS):
        return MISSING
    if isinstance(value, Value):
        interval = f" ({value.low} to {value.high})" if value.low != value.high else ""
        return f"{value.value}{interval}"
    if isinstance(value, int) and kind in ("count", "size"):
        return words.number(value) if kind == "count" else words.size(value)
    if kind == "share" and isinstance(value, tuple):
        return f"{value[0]} of {value[1]}"
    if isinstance(value, tuple):
        return "; ".join(map(str, value))
    if kind == "epsilon":
        return "∞" if value == "infinity" else str(value)
    return words.decimal(str(value)) if kind == "decimal" else str(value)


def first(rows: Sequence[object], most: int, note: str = "") -> str:
    """Return the note of a table that shows so many rows at most."""
    cut = f"The first {most}; report.json has all" if len(rows) > most else ""
    return ". ".join(part for part in (note, cut) if part)
