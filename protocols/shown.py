"""How plans, policies, reports and runs show themselves: one line of text, one table of a notebook.

Names come from files that somebody else wrote: in HTML all text is escaped. What is not
printable is replaced: a terminal obeys control characters, and a browser turns text round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, ClassVar

from protocols.strict import Strict

__all__ = ["Shown", "line", "page"]

_LONGEST = 80  # characters of one value in a line
_NAMED = 8  # entries of a list that is one value
_MOST = 40  # rows of a table; a notebook is no place for more


def line(kind: str, facts: Iterable[tuple[str, Any]]) -> str:
    """Return ``<kind name: value, name: value>`` in one line.

    Args:
        kind: what it is.
        facts: name and value of each thing that is shown.
    """
    told = ", ".join(f"{name}: {_short(_text(value))}" for name, value in facts)
    return "".join(c if c.isprintable() else "?" for c in f"<{kind} {told}>")


def page(
    title: str,
    facts: Iterable[tuple[str, Any]],
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[Any]] = (),
) -> str:
    """Return HTML without scripts, styles and links: a heading, facts, and one table.

    Args:
        title: of the whole.
        facts: name and value of each.
        columns: headings of the table.
        rows: its cells; of more than 40 the rest is counted only.
    """
    parts = [f"<p><strong>{_cell(title)}</strong></p>", "<table>"]
    for name, value in facts:
        parts.append(f"<tr><th>{_cell(name)}</th><td>{_cell(value)}</td></tr>")
    parts.append("</table>")
    if rows:
        head = "".join(f"<th>{_cell(name)}</th>" for name in columns)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>")
        for row in rows[:_MOST]:
            parts.append("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>")
        parts.append("</tbody></table>")
        if len(rows) > _MOST:
            parts.append(f"<p>and {len(rows) - _MOST} more</p>")
    return "<div>" + "".join(parts) + "</div>"


class Shown(Strict):
    """A closed model that shows a few of its facts, and one of its lists.

    Attributes:
        facts: attributes, as paths with dots; empty ones are left out.
        listed: the attribute that holds the list, and attributes of its entries.
    """

    facts: ClassVar[tuple[str, ...]] = ()
    listed: ClassVar[tuple[str, ...]] = ()

    def _facts(self) -> list[tuple[str, Any]]:
        found = [(path.removeprefix("subject."), _at(self, path)) for path in self.facts]
        told = [(name, value) for name, value in found if value not in ("", ())]
        return [(name.replace("_", " ").replace(".", " "), value) for name, value in told]

    def __repr__(self) -> str:
        return line(type(self).__name__, self._facts())

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        name, *columns = self.listed
        rows = [[_at(entry, path) for path in columns] for entry in _at(self, name)]
        return page(type(self).__name__, self._facts(), columns, rows)


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = getattr(value, part)
    return value() if callable(value) else value


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        more = f"; ... ({len(value)} in all)" if len(value) > _NAMED else ""
        return "; ".join(map(str, value[:_NAMED])) + more
    return str(value)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _cell(value: Any) -> str:
    # Characters that turn the direction of text round would show a cell as another one.
    text = "".join(c if c.isprintable() or c == "\n" else "?" for c in _text(value))
    return escape(text, quote=True)
