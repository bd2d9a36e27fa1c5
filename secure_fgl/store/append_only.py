"""Files that are written again and again: appended durably, or held open, never through a link."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from protocols.errors import EvidenceError
from secure_fgl.store.files import Folder, open_plain

FILE_LIMIT = 1 << 28  # bytes; a budget of ours takes 4 kB a run
_MOST = 192  # files held open; a process may have 1024, and those of its parties' ledgers


def content(path: str, *, step: str) -> bytes:
    """Return a file's bytes, none if there is no file; links are not followed.

    Raises:
        EvidenceError: at `step`: the file is larger than any of ours.
        OSError: it cannot be read.
    """
    try:
        file = open_plain(path, os.O_RDONLY)
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
    flags = os.O_WRONLY | os.O_APPEND
    try:
        file, new = open_plain(path, flags | os.O_CREAT | os.O_EXCL), True
    except FileExistsError:
        file, new = open_plain(path, flags), False
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


def synced(file: int) -> None:
    """Return once what was written to an open file, or folder, is on the device; raises OSError."""
    os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        synced(opened)
    finally:
        os.close(opened)


class Opened:
    """Files of a folder that stay open, as opening one costs more than writing to it.

    Args:
        folder: where they are.
        flags: how they are opened, see `Folder.open`.
    """

    def __init__(self, folder: Folder, flags: int) -> None:
        self.folder, self._flags = folder, flags
        self._files: dict[str, int] = {}  # the one used last stands last

    def file(self, name: str) -> int:
        """Return a descriptor, valid until the next call; raises as `Folder.open` does."""
        file = self._files.pop(name, None)
        # Removed, replaced or linked to since: what is there now is opened, and checked, again.
        if file is not None and os.fstat(file).st_nlink != 1:
            os.close(file)
            file = None
        if file is None:
            if len(self._files) >= _MOST:
                self.close(next(iter(self._files)))
            file = self.folder.open(name, self._flags)
        self._files[name] = file
        return file

    def close(self, *names: str) -> None:
        """Close these files, as far as they are open; all of them if none is named."""
        for name in names or tuple(self._files):
            if (file := self._files.pop(name, None)) is not None:
                with contextlib.suppress(OSError):
                    os.close(file)
