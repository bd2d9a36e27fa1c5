"""What a finished run tells of itself: its result, its rounds, and both as a notebook shows them.

All of it is read from ``result.json`` and ``metrics.jsonl``, which hold what the plan releases and
what the simulator measured; no client's state, capture or model is opened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audits.evidence.run_files import json_object, read_metrics, read_result
from protocols.errors import EvidenceError
from protocols.shown import line, page

if TYPE_CHECKING:
    import pandas

__all__ = ["Results"]

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
