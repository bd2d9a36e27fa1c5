"""A run's log for machines: one JSON object a line on stderr, of what the plan releases alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

__all__ = ["JsonLog"]


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
