"""Printing: people read stderr and tables, machines read stdout.

All text goes through `clean`: names and details come from files that somebody else wrote, and a
terminal obeys control characters. Markup is never interpreted, so ``f4[2754]`` stays as it is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

NARROWEST = 80  # columns
HEADLINES = {
    "test_accuracy": "accuracy",
    "test_roc_auc": "ROC-AUC",
    "test_mae": "MAE",
    "test_rmse": "RMSE",
    "test_told": "mean of scores that clients told, with noise",
}
"""The metric that a result is summed up by, with its label; a task has one of them."""
WORDS = {
    "OK": "green",
    "PASS": "green",
    "FAIL": "bold red",
    "NOT CHECKED": "yellow",
    "ABOVE_PRIOR": "yellow",
    "INCONCLUSIVE": "yellow",
    "NOT_TESTED": "yellow",
    "INVALID": "yellow",
    "ERROR": "bold red",
}


def console(*, stderr: bool = True) -> Console:
    """Return a console; without a terminal it prints no colours and no control characters.

    It is never narrower than `NARROWEST`: a table squeezed further would lose characters, and a
    narrow terminal breaks long lines by itself.
    """
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    made.width = max(made.width, NARROWEST)
    return made


def clean(text: str) -> str:
    """Replace everything but printable characters and line breaks by ``?``."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def say(text: str, *, style: str = "", stderr: bool = True) -> None:
    """Print a paragraph; terminals get it wrapped at words, files and pipes as it is."""
    out = console(stderr=stderr)
    out.print(Text(clean(text), style=style, overflow="fold"), soft_wrap=not out.is_terminal)


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    text = document if isinstance(document, str) else json.dumps(document, indent=2)
    sys.stdout.write(text.rstrip("\n") + "\n")


def grid(columns: Sequence[str], *, title: str = "") -> Table:
    """Return an empty table whose cells wrap and never lose a character."""
    table = Table(
        box=box.SIMPLE_HEAD,
        title=Text(title) if title else None,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        pad_edge=False,
        expand=False,
    )
    for name in columns:
        number = name.startswith(">")
        table.add_column(
            name.lstrip(">"),
            justify="right" if number else "left",
            no_wrap=number,
            overflow="fold",
        )
    return table


def cell(text: str, style: str = "") -> Text:
    """Return a table cell of untrusted text."""
    return Text(clean(text), style=style, overflow="fold")


def print_pairs(
    pairs: Iterable[tuple[str, str]],
    *,
    stderr: bool = False,
    wrap: bool = True,
    links: Sequence[str] = (),
) -> None:
    """Print names and values in two columns; unwrapped, a path stays whole when it is copied.

    Args:
        pairs: names and values.
        stderr: where to.
        wrap: whether long values are folded.
        links: names, of pairs that are not wrapped, whose value is a file that a terminal can open.
    """
    rows, out = list(pairs), console(stderr=stderr)
    if not wrap:
        width = max(len(name) for name, _ in rows) + 2
        for name, value in rows:
            style = f"link {Path(value).absolute().as_uri()}" if name in links else ""
            line = Text.assemble(cell(name.ljust(width), "bold"), cell(value, style))
            out.print(line, soft_wrap=True)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(cell(name, "bold"), cell(value))
    out.print(table)
