"""What Python shows of runs, in a notebook or on a terminal: tables, rounds, progress."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audits.evidence.run_files import json_object, read_metrics, read_result
from protocols.errors import EvidenceError
from protocols.shown import line, page

if TYPE_CHECKING:
    import pandas

__all__ = ["Results", "in_notebook", "watched"]


# What a finished run tells of itself: its result, its rounds, and both as a notebook shows them.
#
# All of it is read from ``result.json`` and ``metrics.jsonl``, which hold what the plan releases
# and what the simulator measured; no client's state, capture or model is opened.

_SHOWN = ("algorithm", "policy", "rounds", "clients", "verdict", "model_sha256")


class Results(ABC):
    """What is read of the result of a run.

    Attributes:
        path: the run folder.
    """

    path: Path

    @abstractmethod
    def _content(self, name: str) -> bytes:
        """Return a file of the run folder; empty if there is none."""

    @property
    def result(self) -> dict[str, Any]:
        """What ``secure-fgl run --format json`` printed; empty if the run did not finish.

        Raises EvidenceError for a file that is not exactly one JSON object.
        """
        return read_result(self._content("result.json"))

    @property
    def metrics(self) -> dict[str, Any]:
        """Cohort metrics at the best validation round."""
        return json_object(self.result.get("metrics", {}), "the metrics of result.json")

    @property
    def model_sha256(self) -> str | None:
        """Digest of the aggregator's public state after the last round."""
        return self.result.get("model_sha256")

    def _rounds(self) -> list[dict[str, Any]]:
        return read_metrics(self._content("metrics.jsonl"))

    @property
    def history(self) -> pandas.DataFrame | list[dict[str, Any]]:
        """Cohort metrics of each scored round, in order, with the number of the ``round``.

        A DataFrame with one row a round where pandas is installed, else a list of one dict a round.
        Raises EvidenceError for a file that holds anything but one JSON object a line.
        """
        rows = self._rounds()
        try:
            import pandas
        except ImportError:
            return rows
        return pandas.DataFrame(rows)

    def _facts(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = [("folder", self.path)]
        try:
            result, metrics = self.result, self.metrics
        except EvidenceError as error:  # a notebook shows a damaged run, too
            return [*found, ("result", f"cannot be read: {error.what}")]
        if not result:
            return [*found, ("result", "none: the run did not finish")]
        data = result.get("data")
        if isinstance(data, dict):
            note = " (SYNTHETIC DATA)" if data.get("synthetic") else ""
            found.append(("data", f"{data.get('name')}{note}"))
        found += [(name.replace("_", " "), result[name]) for name in _SHOWN if name in result]
        return found + [(name.replace("_", " "), value) for name, value in metrics.items()]

    def __repr__(self) -> str:
        return line("Run", self._facts())

    def _repr_html_(self) -> str:
        """Return what a notebook shows: facts of the result, and the scores of the rounds."""
        try:
            rows = self._rounds()
        except EvidenceError:
            rows = []
        columns = list(dict.fromkeys(name for row in rows for name in row))
        cells = [[row.get(name, "") for name in columns] for row in rows]
        return page("Run", self._facts(), columns, cells)


# Progress of a run that was started from Python: a bar of rich, or of tqdm in a notebook.

Told = Callable[[int, int, Mapping[str, Any]], None]


def in_notebook() -> bool:
    """Tell whether this process is the kernel of a notebook."""
    running = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(running).__name__ == "ZMQInteractiveShell"


@contextmanager
def watched(progress: Told | bool, headline: Callable[[], str]) -> Iterator[Told | None]:
    """Give what is called after each round.

    Args:
        progress: a function of one's own; True: a bar; False: nothing.
        headline: returns the name of the score that the bar shows.
    """
    if progress is False:
        yield None
    elif progress is not True:
        yield progress
    elif in_notebook():
        with _notebook_bar(headline()) as bar:
            yield bar
    else:
        from secure_fgl.cli._shared.output import RunProgress

        with RunProgress(headline()) as shown:
            yield shown


@contextmanager
def _notebook_bar(headline: str) -> Iterator[Told]:
    from tqdm.auto import tqdm  # a widget where ipywidgets is there, else text

    with tqdm(total=0, unit="round") as bar:

        def told(round: int, rounds: int, metrics: Mapping[str, Any]) -> None:
            bar.total, bar.n = rounds, round
            score = metrics.get(headline)
            if isinstance(score, float):
                bar.set_postfix_str(f"{headline} {score:.3f}", refresh=False)
            bar.refresh()

        yield told
