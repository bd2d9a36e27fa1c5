"""Printing: people read stderr and tables, machines read stdout.

All text goes through `clean`: names and details come from files that somebody else wrote, and a
terminal obeys control characters. Markup is never interpreted, so ``f4[2754]`` stays as it is.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
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


# --- A progress bar for runs that take longer than about two seconds ---

PATIENCE = 2.0  # seconds; what is shorter needs no bar
LINES = 10  # progress lines in a log that is not a terminal


class RunProgress:
    """Shows rounds and their score on stderr: a bar on a terminal, some lines elsewhere.

    Args:
        headline: the metric that is shown.
    """

    def __init__(self, headline: str) -> None:
        self._headline = headline
        self._out = console()
        self._start = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._bar: Progress | None = None
        self._told = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], after="")
            self._bar.stop()

    def __call__(self, round: int, rounds: int, metrics: Mapping[str, Any]) -> None:
        """Take note of a finished round; see `secure_fgl.federation.Progress`."""
        if not self._worthwhile(round, rounds):
            return
        text = _scores(metrics, self._headline)
        if self._out.is_terminal:
            self._draw(round, rounds, text)
        elif round == rounds or round * LINES // rounds > self._told:
            self._told = max(1, round * LINES // rounds)
            self._out.print(f"round {round}/{rounds}  {text}", soft_wrap=True)

    def _worthwhile(self, round: int, rounds: int) -> bool:
        """Tell whether the whole run is expected to outlast `PATIENCE`."""
        if self._bar is not None or self._told:
            return True
        now = time.monotonic()
        if self._first is None:  # its own duration is unknown: loading came before it
            self._first = now, round
        since, done = now - self._first[0], round - self._first[1]
        remaining = since / done * (rounds - round) if done else 0.0
        return now - self._start + remaining > PATIENCE

    def _draw(self, round: int, rounds: int, text: str) -> None:
        if self._bar is None:
            self._bar = Progress(
                TextColumn("round"),
                MofNCompleteColumn(),
                BarColumn(bar_width=15),
                TextColumn("{task.fields[scores]}", markup=False),
                TimeRemainingColumn(),
                TextColumn("{task.fields[after]}", markup=False),
                console=self._out,
            )
            self._bar.add_task("run", total=rounds, scores=text, after="")
            self._bar.start()
        # What follows the last round takes seconds too: references, verification, report.
        after = "reporting" if round == rounds else ""
        self._bar.update(self._bar.task_ids[0], completed=round, scores=text, after=after)


def _scores(metrics: Mapping[str, Any], headline: str) -> str:
    headline = "test_told" if "test_told" in metrics else headline  # under clients' own noise
    after = f", after round {metrics['round']}" if "round" in metrics else ""
    named = (("val", headline.replace("test_", "val_", 1)), ("test", headline))
    found = [(name, metrics.get(metric)) for name, metric in named]
    if all(value is None for _, value in found):
        return "not scored"
    text = "  ".join(f"{n} no records" if v is None else f"{n} {v:.3f}" for n, v in found)
    return text + after


# --- A run's log for machines: one JSON object a line on stderr, of what the plan releases alone
# ---


class JsonLog:
    """Writes a line for the plan, each round, each note and the end; see `RunProgress`.

    A line holds the cohort's scores, as ``metrics.jsonl`` does, and nothing of one client.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.write("stopped", error=kind.__name__)  # its text is printed, and may be long

    def __call__(self, round: int, rounds: int, metrics: Mapping[str, Any]) -> None:
        """Take note of a finished round; see `secure_fgl.federation.Progress`."""
        self.write("round", round=round, rounds=rounds, metrics=dict(metrics))

    def note(self, text: str) -> None:
        """Take note of a step of a rehearsal."""
        self.write("note", text=text)

    def write(self, event: str, **facts: Any) -> None:
        """Write one line; control characters are escaped, as JSON has it."""
        sys.stderr.write(json.dumps({"event": event, **facts}) + "\n")
        sys.stderr.flush()
