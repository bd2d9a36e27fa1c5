"""What the office knows of the engine's job, kept beside the aggregator's status."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from protocols.errors import EvidenceError
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder

__all__ = ["JobNote"]

_FILE, _LIMIT = "job.json", 1 << 16


@dataclass
class JobNote:
    """The job that was handed in last.

    Attributes:
        run: of which run.
        job: NVFlare's id; empty before the first.
        word: NVFlare's word for how it is.
        at: when it was asked, in seconds since 1970.
        handed_in: how many jobs of this run were.
        outcome: how the run ended; empty while it goes on.
    """

    run: str
    job: str = ""
    word: str = ""
    at: float = 0.0
    handed_in: int = 0
    outcome: str = ""

    @classmethod
    def read(cls, folder: str | Path, run: str) -> JobNote:
        """Return the note of this run in a party's folder; a new one if there is none."""
        with contextlib.suppress(EvidenceError, OSError, TypeError, UsageError, ValueError):
            document = json.loads(Folder(folder).read(_FILE, _LIMIT))
            if set(document) == {field.name for field in fields(cls)} and document["run"] == run:
                return cls(**document)
        return cls(run)

    def write(self, folder: str | Path) -> None:
        """Keep the note; raises OSError."""
        self.at = time.time()
        Folder(folder).write(_FILE, json.dumps(asdict(self)).encode())
