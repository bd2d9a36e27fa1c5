"""PARTY/site.log: why something failed at a site, for its own operator alone."""

from __future__ import annotations

import os
from pathlib import Path

from protocols.errors import SecureFglError
from secure_fgl.run.clock import clock

__all__ = ["NAME", "note"]

NAME = "site.log"
_LIMIT = 16 << 20  # bytes: whoever runs the engine can send nonsense for ever


def note(folder: Path, what: str, error: BaseException | None = None) -> None:
    """Add one line, with the error's reason. It may quote data: nobody else can read the file.

    A log that cannot be written stops nothing: what it is about has failed already.
    """
    told = ""
    if isinstance(error, SecureFglError):
        told = " ".join(error.diagnostics().split())
    elif error is not None:
        told = f"{type(error).__name__}: {' '.join(str(error).split())}"
    line = " ".join(filter(None, (clock(), what, told)))
    flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(folder / NAME, flags, 0o600), "a", encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_size < _LIMIT:
                file.write(f"{line}\n")
    except OSError:
        return
