"""Folders that somebody else may have filled: no link is followed, and no file is written through.

A run folder, its reports and its bundle come from whoever hands them over. A link in it that points
at a file of its reader's would be read into a report, or replaced by one. So each access begins at
a handle of the folder and opens one name after the other without following links; a new file is
made exclusively under a name that nobody can know, and then takes its place as a whole. The folder
itself, and what a user names with ``--out``, may be reached through links: its user chose it.

What is made inside is for its owner alone: folders 0700, files 0600. What a user asked for by name
(``--out``) has the mode that the user's umask gives.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from protocols.errors import EvidenceError
from secure_fgl.errors import UsageError

FILE_LIMIT = 1 << 30  # bytes; larger files are refused, not read
_PART = 1 << 20  # bytes of a file that are held while it is summed
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SETTINGS = 1 << 24  # bytes; files of settings are written by hand
# EINVAL: see `open_plain`; ENXIO: a socket, or a FIFO without a reader.
_LINKED = {errno.EINVAL, errno.ELOOP, errno.ENOTDIR, errno.ENXIO}
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.new")
_RUN = re.compile(r"[0-9a-f]{32}")


def is_temporary(name: str) -> bool:
    """Tell whether a file's name is one under which a file is written, and which a kill leaves."""
    return bool(_TEMPORARY.fullmatch(name))


def is_run_name(text: str) -> bool:
    """Tell whether a text is a run's name: 32 hexadecimal digits."""
    return bool(_RUN.fullmatch(text))


def run_name(text: object) -> str:
    """Return a run's name, which becomes a folder's; raises UsageError unless it is one.

    A name is 32 hexadecimal digits (`protocols.wire.roster.run_id`). Anything else could lead out
    of the folder that keeps all runs' keys.
    """
    if not isinstance(text, str) or not _RUN.fullmatch(text):
        raise UsageError(
            "A run's name is not 32 hexadecimal digits.",
            why="roster.json was cut or changed",
            fix="start a new run in another folder",
        )
    return text


class Folder:
    """A folder whose content is not trusted.

    Every name is relative and made of plain parts ("ledger/aggregator.jsonl"). Methods raise
    OSError for what the operating system refuses.

    Args:
        path: of the folder; it need not exist until something is written.
        mode: of files that are written.
    """

    def __init__(self, path: str | Path, *, mode: int = 0o600) -> None:
        self.path, self._mode = Path(path), mode

    def make(self) -> None:
        """Make the folder, 0700, if it is not there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)

    def read(self, name: str, limit: int = FILE_LIMIT) -> bytes:
        """Return a file's content; empty if there is none.

        Raises:
            EvidenceError: at step ``files``: it is a link, or lies behind one, or is no file.
            UsageError: it is larger than `limit` bytes.
        """
        try:
            with self._file(name, os.O_RDONLY) as file:
                data = file.read(limit + 1)
        except FileNotFoundError:
            return b""
        if len(data) > limit:
            raise UsageError(f"{self.path / name} is too large to be one of our files.")
        return data

    def holds(self, name: str) -> bool:
        """Tell whether there is such a file; raises EvidenceError as `read` does."""
        try:
            with self._file(name, os.O_RDONLY):
                return True
        except FileNotFoundError:
            return False

    def names(self, folder: str = "", suffix: str = "") -> list[str]:
        """Return the names of a sub-folder's files, sorted; none if there is no such folder.

        Raises:
            EvidenceError: at step ``files``: one of them, or the folder itself, is a link.
        """
        try:
            with self._handle(_parts(folder) if folder else ()) as handle, os.scandir(handle) as at:
                found = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in at]
        except FileNotFoundError:
            return []
        found = [(name, mode) for name, mode in found if name.endswith(suffix)]
        if any(not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) for _, mode in found):
            raise _linked(folder or "the folder")
        return sorted(name for name, mode in found if stat.S_ISREG(mode))

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file as a whole; a link of that name is replaced, not followed."""
        *folders, leaf = _parts(name)
        with self._handle(tuple(folders), make=True) as handle:
            fresh = f".{leaf}.{secrets.token_hex(8)}.new"
            try:
                with _made(fresh, self._mode, handle) as file:
                    file.write(data)
                os.replace(fresh, leaf, src_dir_fd=handle, dst_dir_fd=handle)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(fresh, dir_fd=handle)
                raise

    def create(self, name: str, data: bytes) -> None:
        """Write a new file; raises FileExistsError if something of that name is there."""
        with os.fdopen(self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(data)

    def append(self, name: str, data: bytes) -> None:
        """Append to a file, which is made if it is not there."""
        with self._file(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, make=True) as file:
            file.write(data)

    def summed(self, name: str, first: int) -> tuple[str, bytes]:
        """Return the SHA-256 (hex) of a file of any size, and its first bytes.

        Raises:
            EvidenceError: at step ``files``: as `read` does.
        """
        with self._file(name, os.O_RDONLY) as file:
            head = file.read(first)
            digest = hashlib.sha256(head)
            while part := file.read(_PART):
                digest.update(part)
        return digest.hexdigest(), head

    def open(self, name: str, flags: int) -> int:
        """Return a descriptor of a plain file, which the caller closes; folders are made.

        Raises:
            EvidenceError: at step ``files``: it is a link, or lies behind one, or is no file.
        """
        *folders, leaf = _parts(name)
        try:
            with self._handle(tuple(folders), make=bool(flags & os.O_CREAT)) as handle:
                file = open_plain(leaf, flags, self._mode, at=handle)
        except OSError as error:
            if error.errno in _LINKED:
                raise _linked(name) from error
            raise
        # A file with a second name, perhaps elsewhere, may be read, but nothing is written to it.
        if flags & (os.O_WRONLY | os.O_RDWR) and os.fstat(file).st_nlink > 1:
            os.close(file)
            raise _linked(name)
        return file

    def there(self, name: str) -> bool:
        """Tell whether anything of that name is in the folder, whatever it is."""
        return os.path.lexists(self.path / Path(*_parts(name)))

    def folders(self, folder: str = "") -> list[str]:
        """Return the names of all sub-folders of a folder, sorted; links are none."""
        try:
            with self._handle(_parts(folder) if folder else ()) as handle, os.scandir(handle) as at:
                return sorted(e.name for e in at if e.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        """Remove a file, or a link of that name, if it is there."""
        *folders, leaf = _parts(name)
        with contextlib.suppress(FileNotFoundError), self._handle(tuple(folders)) as handle:
            os.unlink(leaf, dir_fd=handle)

    def remove_tree(self, name: str) -> None:
        """Remove a sub-folder with all that is in it, and nothing that a link in it names.

        What cannot be removed stays.
        """
        (leaf,) = _parts(name)
        with contextlib.suppress(OSError), self._handle(()) as handle:
            shutil.rmtree(leaf, ignore_errors=True, dir_fd=handle)

    @contextlib.contextmanager
    def _file(self, name: str, flags: int, *, make: bool = False) -> Iterator[BinaryIO]:
        file = self.open(name, flags | (os.O_CREAT if make else 0))
        with os.fdopen(file, "rb" if not flags & os.O_WRONLY else "ab") as opened:
            yield opened

    @contextlib.contextmanager
    def _handle(self, folders: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of a sub-folder that was reached without following a link."""
        if make:
            self.make()
        handle = os.open(self.path, _DIRECTORY)
        try:
            for name in folders:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=handle)
                try:
                    inner = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
                except NotADirectoryError as error:
                    raise _linked(name) from error
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)


def content(path: Path, limit: int) -> bytes | None:
    """Return what a file holds that a user named, at most `limit` bytes; None if it holds more.

    A folder that the user was given may hold a pipe under the name, which would never end.

    Raises:
        OSError: it cannot be read, or is no plain file.
    """
    with os.fdopen(open_plain(path, os.O_RDONLY, linked=True), "rb") as file:
        data = file.read(limit + 1)
    return data if len(data) <= limit else None


def settings_text(path: Path) -> str:
    """Return the text of a file of settings that a user named; see `content`.

    Raises:
        OSError: it cannot be read, is no plain file, or is far larger than settings are.
        UnicodeDecodeError: it is no UTF-8.
    """
    data = content(path, _SETTINGS)
    if data is None:
        raise OSError(errno.EFBIG, f"it is larger than {_SETTINGS} bytes")
    return data.decode("utf-8")


def open_plain(
    path: str | Path, flags: int, mode: int = 0o600, *, linked: bool = False, at: int | None = None
) -> int:
    """Return a descriptor of a plain file; nothing is waited for, whatever lies there.

    A folder that others write to may hold a pipe under the name, and opening one waits for a
    writer; a device may be locked, or written to.

    Args:
        path: of the file.
        flags: as those of `os.open`.
        mode: of a file that is made.
        linked: whether a link of that name is followed; its user chose it.
        at: descriptor of the folder from which the path is.

    Raises:
        OSError: it cannot be opened, is a link that is not followed, or is no plain file.
    """
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | (0 if linked else os.O_NOFOLLOW)
    file = os.open(path, flags, mode, dir_fd=at)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no plain file")
    return file


def held(file: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file for this process, and tell whether that went; nothing is waited for."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def replace(path: Path, data: bytes) -> None:
    """Write a file that a user named, as a whole; its folder is made. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Folder(path.parent, mode=0o666).write(path.name, data)


def create(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a new file that a user named; its folder is made.

    Raises:
        FileExistsError: something of that name is there, a link that leads nowhere included.
        OSError: it cannot be written; nothing is left of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _made(str(path), mode) as file:
        try:
            file.write(data)
            file.flush()
        except BaseException:
            os.unlink(path)
            raise


def _made(name: str, mode: int, handle: int | None = None) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    return os.fdopen(open_plain(name, flags, mode, at=handle), "wb")


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name; raises EvidenceError for one that could lead elsewhere."""
    parts = tuple(name.split("/"))
    if any(part in {"", ".", ".."} or "\0" in part for part in parts):
        raise EvidenceError("files", "a file's name leads out of its folder")
    return parts


def _linked(name: str) -> EvidenceError:
    return EvidenceError("files", f"{name} is a link or no plain file; nothing is read through it")


# --- Files that are written again and again: appended durably, or held open, never through a link
# ---

APPENDED_LIMIT = 1 << 28  # bytes; a budget of ours takes 4 kB a run
_MOST = 192  # files held open; a process may have 1024, and those of its parties' ledgers


def appended_content(path: str, *, step: str) -> bytes:
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
        data = opened.read(APPENDED_LIMIT + 1)
    if len(data) > APPENDED_LIMIT:
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
