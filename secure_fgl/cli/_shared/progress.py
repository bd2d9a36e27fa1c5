"""A progress bar for runs that take longer than about two seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from secure_fgl.cli._shared.output import console

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
