"""Files that only grow: read whole, appended durably, never followed through a link."""

from __future__ import annotations

import os
from pathlib import Path

from crypto.spans import count, spent
from protocols.errors import EvidenceError

FILE_LIMIT = 1 << 28  # bytes; a budget of ours takes 4 kB a run


def content(path: str, *, step: str) -> bytes:
    """Return a file's bytes, none if there is no file; links are not followed.

    Raises:
        EvidenceError: at `step`: the file is larger than any of ours.
        OSError: it cannot be read.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return b""
    with os.fdopen(file, "rb") as opened:
        data = opened.read(FILE_LIMIT + 1)
    if len(data) > FILE_LIMIT:
        raise EvidenceError(step, "a budget is larger than any of ours")
    return data


def append(path: str, data: bytes) -> None:
    """Append and fsync; on failure, or an interrupt, the file is cut back to what it was.

    A file that is not there is made for its owner alone. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
    try:
        file, new = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600), True
    except FileExistsError:
        file, new = os.open(path, flags), False
    try:
        size = os.fstat(file).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            synced(file)
            if new:
                sync_folder(Path(path).parent)
        except BaseException:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


@spent("waiting (disk)")
def synced(file: int) -> None:
    """Return once what was written to an open file, or folder, is on the device; raises OSError."""
    count("syncs")
    os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        synced(opened)
    finally:
        os.close(opened)
