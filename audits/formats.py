"""The ways to write a report: HTML, Markdown, CSV and JSON, all from :mod:`audits.report.table`.

Rendering is deterministic: equal reports, equal bytes.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from audits import plots
from audits.attacks._shared.models import Value
from audits.report import spreadsheets, words
from audits.report.models import Report
from audits.report.page import sections
from audits.report.table import (
    NUMBERS,
    Block,
    Bullets,
    Code,
    Facts,
    Figure,
    Folded,
    Heading,
    Kind,
    Lines,
    Prose,
    Section,
    Table,
    Unsafe,
    text,
)
from audits.report.words import visible

_TEMPLATES = Path(__file__).resolve().parent / "templates"
_THIN = "\u202f"  # between groups of three digits
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~])")
_NUMBER = re.compile(r"-\d+(\.\d+)?", re.ASCII)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_CLASSES = {
    "words": "words", "long": "long", "fixed": "fixed", "guard": "guarded", "code": "fixed",
    "digest": "digest long",
}  # fmt: skip


def file_names(name: str) -> tuple[str, ...]:
    """Return the file names that a format writes; raises ValueError for an unknown format."""
    return _format(name)[0]


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
        files.update(_format(name)[1](report))
    return files


# JSON and CSV: facts for programs.


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of ``report.json``."""
    found = Report.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def json_text(report: Report) -> bytes:
    """Return JSON with sorted keys, two spaces, ASCII only."""
    document = report.model_dump(mode="json")
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode("ascii")


def _sheet(table: Table) -> bytes:
    return _csv([column.title for column in table.columns], table.rows)


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")  # RFC 4180
    writer.writerow(header)
    writer.writerows([cell(value) for value in row] for row in rows)
    return out.getvalue().encode("utf-8")


def cell(value: object) -> str:
    """Return a cell that no spreadsheet takes for a formula: names come from strangers."""
    shown = visible(str(value).lower() if isinstance(value, bool) else str(value))
    plain_number = _NUMBER.fullmatch(shown)
    return f"'{shown}" if shown.startswith(_FORMULA) and not plain_number else shown


# HTML: one file without scripts or outside references, for people to read and print.


def _shown(value: object) -> object:
    """Return a value as a page shows it; pictures, made here, stay markup."""
    if isinstance(value, Markup):
        return Markup(visible(value))  # noqa: S704 - it was markup
    return visible(value) if isinstance(value, str) else value


def _state(word: str) -> Markup:
    kind = "".join(c if c.isalnum() else "-" for c in word.lower())
    return Markup('<span class="state {}">{}{}</span>').format(kind, plots.mark(word), word)


def _part(part: str) -> Markup:
    """Return a part of a sentence; commands and warnings look different."""
    if isinstance(part, Code):
        return Markup("<code>{}</code>").format(str(part))
    if isinstance(part, Unsafe):
        return Markup('<strong class="unsafe">{}</strong>').format(str(part))
    return escape(part)


def _lines(lines: Sequence[str]) -> Markup:
    first, *others = lines
    more = (Markup('<br><span class="muted">{}</span>').format(line) for line in others)
    return Markup("").join([escape(first), *more])


def _cell(kind: Kind, value: object) -> Markup:
    """Return a cell of the page, by the kind of its column."""
    if isinstance(value, Lines):
        return _lines(value)
    if kind == "state":
        return _state(str(value))
    if kind == "share" and isinstance(value, tuple):
        seen, planned = value
        return plots.meter(seen / planned if planned else 0, text(kind, value))
    if isinstance(value, Value) and value.low != value.high:
        return Markup('{}<br><span class="muted ends">{} to {}</span>').format(
            value.value, value.low, value.high
        )
    if isinstance(value, tuple):
        items = Markup("").join(Markup("<li>{}</li>").format(line) for line in value)
        return Markup('<ul class="plain">{}</ul>').format(items)
    shown = text(kind, value)
    return Markup("<code>{}</code>").format(shown) if kind == "code" and shown else escape(shown)


def _looks(kind: Kind, value: object = "") -> Markup:
    """Return the class attribute of a cell; empty for plain text."""
    names = "num" if kind in NUMBERS else _CLASSES.get(kind, "")
    names += " unsafe" if isinstance(value, Unsafe) else ""
    return Markup(' class="{}"').format(names.strip()) if names else Markup("")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES, encoding="utf-8"),
        autoescape=True,  # names come from other organisations
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals.update(
        cell=_cell, lines=_lines, looks=_looks, mark=plots.mark, part=_part, state=_state,
        name=lambda block: type(block).__name__,
    )  # fmt: skip
    return made


def _page(
    parts: Sequence[Section], title: str, about: str, notes: Sequence[str], lead: str, **more: Any
) -> bytes:
    page = _environment().get_template("page.html.j2")
    made = page.render(sections=parts, title=title, about=about, notes=notes, lead=lead, **more)
    return made.encode("utf-8")


def _about(report: Report) -> str:
    subject = report.subject
    synthetic = " (synthetic)" if subject.synthetic else ""
    return (
        f"{subject.algorithm} on {subject.dataset}{synthetic} · "
        f"{words.plural(subject.clients, 'client')} · up to "
        f"{words.plural(subject.rounds, 'round')} · policy {subject.policy}"
    )


def _run(report: Report) -> str:
    subject = report.subject
    recorded = f" · recorded from {subject.first_entry} to {subject.last_entry}"
    return f"Run {subject.run}{recorded if subject.first_entry else ''}"


def _footer(report: Report) -> str:
    tool = report.tool
    return f"Made by {tool.name} (report version {tool.report_version}) from the run's own files."


def _html(report: Report) -> dict[str, bytes]:
    page = _page(
        sections(report), "What left each client", _about(report), report.notes, report.summary,
        strip=report.verdict_strip, kicker="Secure-FGL leakage report", run=_run(report),
        footer=f"{_footer(report)} The same files always give the same bytes of this page; it "
        "loads nothing and runs no script.",
    )  # fmt: skip
    return {"report.html": page}


# Markdown: the same for a review thread or a terminal.


def plain(text: str) -> str:
    """Escape what Markdown or HTML would read as markup; one line only."""
    groups = (" ".join(part.split()) for part in text.split(_THIN))
    return _SPECIAL.sub(r"\\\1", visible(_THIN.join(groups))).replace("://", ":&#47;&#47;")


def _md_part(part: str) -> str:
    if isinstance(part, Code):
        return f"`{visible(part.replace('`', chr(39)))}`"
    return f"**{plain(part)}**" if isinstance(part, Unsafe) else _spaced(part)


def _spaced(part: str) -> str:
    """Return a part of a sentence with the spaces at its ends, which join it to others."""
    before, after = part[:1] == " ", part[-1:] == " "
    return f"{' ' * before}{plain(part)}{' ' * after}"


def _md_cell(kind: Kind, value: object) -> str:
    shown = plain(text(kind, value))
    strong = kind == "state" or isinstance(value, Unsafe)
    return f"**{shown}**" if strong and shown else shown


def _md_table(table: Table) -> list[str]:
    titles = [plain(column.title) for column in table.columns]
    rows = [
        [_md_cell(column.kind, value) for column, value in zip(table.columns, row, strict=True)]
        for row in table.rows
    ]
    if table.below:
        titles.append("more")
        rows = [
            [*row, plain("; ".join(lines))] for row, lines in zip(rows, table.below, strict=True)
        ]
    lines = [titles, ["---"] * len(titles), *rows]
    caption = f"**{plain(table.title)}**" + (f": {plain(table.note)}." if table.note else "")
    return [caption, "\n".join(f"| {' | '.join(line)} |" for line in lines)]


def _md_list(lines: Iterable[str]) -> list[str]:
    return ["\n".join(f"- {plain(line)}" for line in lines)]


def _md(block: Block) -> list[str]:
    """Return a block as paragraphs; pictures are left out, as a table has their numbers."""
    match block:
        case Table():
            return _md_table(block)
        case Prose():
            said = "".join(map(_md_part, block.parts)).strip()
            return [f"**{said}**" if block.style == "big" else said]
        case Bullets():
            return _md_list(block.lines)
        case Heading():
            return [f"### {plain(block.text)}"]
        case Facts():
            return _md_list(f"{name}: {text('text', value)}" for name, value in block.rows)
        case Figure():
            return []
        case Folded():
            inside = [part for inner in block.blocks for part in _md(inner)]
            return [f"**{plain(block.summary)}**", *inside]


def _text(
    parts: Sequence[Section], title: str, about: str, notes: Sequence[str], lead: str,
    more: Sequence[str] = (), footer: str = "",
) -> bytes:  # fmt: skip
    blocks = [
        f"# {plain(title)}", plain(about), *(f"> **{plain(note)}**" for note in notes),
        plain(lead), *more,
    ]  # fmt: skip
    for number, section in enumerate(parts, 1):
        blocks.append(f"## {number}. {plain(section.title)}")
        blocks += [said for block in section.blocks for said in _md(block)]
    blocks += [plain(footer)] if footer else []
    return ("\n\n".join(block for block in blocks if block) + "\n").encode("utf-8")


def _markdown(report: Report) -> dict[str, bytes]:
    subject = report.subject
    strip = "\n".join(
        [
            "| question | state | answer |",
            "| --- | --- | --- |",
            *(
                f"| {plain(line.question)} | **{line.state}** | {plain(line.answer)} |"
                for line in report.verdict_strip
            ),
        ]
    )
    made = _text(
        sections(report), f"What left each client: {subject.algorithm} on {subject.dataset}",
        f"{_about(report)} · {_run(report)}", report.notes, report.summary, [strip],
        _footer(report),
    )  # fmt: skip
    return {"report.md": made}


def _sheets(report: Report) -> dict[str, bytes]:
    tables = spreadsheets.spreadsheets(report)
    return {name: _sheet(table) for name, table in tables.items()}


_Writer = Callable[[Report], dict[str, bytes]]
_FORMATS: dict[str, tuple[tuple[str, ...], _Writer]] = {
    "csv": (spreadsheets.FILES, _sheets),
    "html": (("report.html",), _html),
    "json": (
        ("report.json",),
        lambda report: {"report.json": json_text(report)},
    ),
    "md": (("report.md",), _markdown),
}
FORMATS: tuple[str, ...] = tuple(_FORMATS)


def _format(name: str) -> tuple[tuple[str, ...], _Writer]:
    if name not in _FORMATS:
        known = ", ".join(FORMATS)
        raise ValueError(f"no report format is called {name[:20]!r}; known: {known}")
    return _FORMATS[name]
