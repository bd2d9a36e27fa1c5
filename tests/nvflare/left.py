"""Processes that have to do with a folder, found in the kernel's list."""

from __future__ import annotations

import os
from pathlib import Path


def processes_of(folder: Path) -> list[int]:
    """Return the processes that were started with a path below `folder`, this one left out."""
    wanted, found = str(folder).encode(), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:  # it is gone, or another user's
            continue
        if wanted in told:
            found.append(int(entry.name))
    return found
