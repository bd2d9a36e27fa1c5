"""Where a run's parties keep their state for after a kill: locked pieces in the run folder.

::

    RUN/private/<party>/<piece>                  locked; never part of a bundle
    $SECURE_FGL_STATE/<run>/<party>.key          the keys to them, 0600, outside the run folder,
                                                 and the number of the party's last commit
    $SECURE_FGL_STATE/<run>/folder               where that run folder lies

Without the variable the keys lie in ``secure-fgl/keys`` of the user's state folder. In a
simulation all parties' keys lie in one place, as all parties run in one process. When a run ends,
its keys and pieces are removed: what a backup still holds of the pieces is locked under keys that
are gone.

Nothing in the run folder is flushed to the device but the ledgers: a kill leaves all that was
written. After a loss of power the state may be older than its ledger; then `secure_fgl run
--resume` refuses. The file with the keys is written in place. It is flushed when a party opened or
used up what may be used once, and when an epoch's key is destroyed; where one process plays several
parties, at most once a second, as all of them are on one machine of one operator.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from crypto.aead import new_key
from protocols.errors import LedgerError
from protocols.sessions.store.journal import Standing
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder, Opened, run_name

__all__ = ["FileStateStore", "KeptStateStore", "StateStores"]

VARIABLE = "SECURE_FGL_STATE"
_OUTSIDE: Final = struct.Struct(">32sQ32sQ")
"""A party's file outside the run folder: store key, and what `Standing` holds."""
_NUMBER: Final = struct.Struct(">Q")
_SECONDS = 1.0  # between two flushes, where one process plays several parties


def default_folder() -> Path:
    """Return the folder of the keys."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "secure-fgl" / "keys"


class FileStateStore:
    """One party's pieces, as files of a folder.

    Args:
        folder: the run folder.
        name: of the party's own folder in it, made when first needed, 0700.
        key: the party's store key.
    """

    def __init__(self, folder: Folder, name: str, key: bytes) -> None:
        self.key, self._folder, self._name = key, folder, name

    def put(self, name: str, data: bytes) -> None:
        """Write or replace a piece as a whole; raises OSError."""
        self._folder.write(f"{self._name}/{name}", data)

    def get(self, name: str) -> bytes | None:
        """Return a piece, None if there is none."""
        return self._folder.read(f"{self._name}/{name}") or None

    def drop(self, name: str) -> None:
        """Remove a piece, if it is there."""
        self._folder.remove(f"{self._name}/{name}")

    def names(self) -> list[str]:
        """Return the names of all pieces, sorted."""
        return [name for name in self._folder.names(self._name) if name[0] != "."]


class KeptStateStore(FileStateStore):
    """One party's kept state: pieces, and its journal; see `protocols.sessions.store.journal`.

    Args:
        folder, name, key: see :class:`FileStateStore`.
        opened: files of the run folder.
        outside: files of the folder of keys.
        file: of the party among them.
        wanted: tells whether to flush now, where a flush is asked for.
    """

    def __init__(
        self,
        folder: Folder,
        name: str,
        key: bytes,
        opened: Opened,
        outside: Opened,
        file: str,
        wanted: Callable[[], bool],
    ) -> None:
        super().__init__(folder, name, key)
        self._opened, self._outside, self._file, self._wanted = opened, outside, file, wanted

    def patch(self, name: str, writes: Iterable[tuple[int, bytes | memoryview]]) -> None:
        """Write bytes at places of a file, in order; raises OSError."""
        file = self._opened.file(f"{self._name}/{name}")
        for at, data in writes:
            _write(file, at, data)

    def drop(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._opened.close(f"{self._name}/{name}")
        super().drop(name)

    def standing(self) -> Standing:
        """Return what lies outside the run folder; raises LedgerError if it is damaged."""
        data = self._outside.folder.read(self._file)
        if len(data) != _OUTSIDE.size:
            raise _damaged()
        _, generation, key, number = _OUTSIDE.unpack(data)
        return Standing(generation, key, number)

    def turn(self, standing: Standing, *, flush: bool) -> None:
        """Overwrite what lies outside, and the old key with it; raises OSError."""
        data = _OUTSIDE.pack(self.key, standing.generation, standing.key, standing.number)
        self._overwrite(0, data, flush=flush)

    def advance(self, number: int, *, flush: bool) -> None:
        """Overwrite the number of the last commit; raises OSError."""
        self._overwrite(_OUTSIDE.size - _NUMBER.size, _NUMBER.pack(number), flush=flush)

    def _overwrite(self, at: int, data: bytes, *, flush: bool) -> None:
        # Never made here: without its file a party's run is over.
        file = self._outside.file(self._file)
        _write(file, at, data)
        if flush and self._wanted():
            os.fdatasync(file)


def _write(file: int, at: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, at)
        view, at = view[done:], at + done


def _damaged() -> LedgerError:
    return LedgerError(
        "The keys of a party's kept state are damaged.",
        why="the file was cut or changed, or is another version's",
        fix="start the run again",
    )


class StateStores:
    """The state stores of one run.

    Args:
        run: the run's name.
        folder: the run folder.
        keys: folder of all runs' keys; :func:`default_folder` if None.

    Raises:
        UsageError: that is no run's name.
    """

    def __init__(self, run: str, folder: Path, keys: Path | None = None) -> None:
        self._folder, self._keys = Folder(folder), Folder(keys or default_folder())
        self._run = run_name(run)
        self._opened = Opened(self._folder, os.O_WRONLY | os.O_CREAT)
        self._outside = Opened(self._keys, os.O_WRONLY)
        self._locked: int | None = None
        self._parties, self._flushed, self._noted = 0, 0.0, False

    def _flush_now(self) -> bool:
        """Tell whether to flush: a party alone always, several in one process once a second."""
        now = time.monotonic()
        if self._parties > 1 and now - self._flushed < _SECONDS:
            return False
        self._flushed = now
        return True

    def _lock(self) -> None:
        """Hold the run against a second process: two would answer one exchange twice (O6).

        One file for all parties of this process, so that thousands of them need no more.
        """
        if self._locked is not None:
            return
        self._locked = self._keys.open(f"{self._run}/lock", os.O_CREAT | os.O_RDWR)
        try:
            # Ends with the process, however that ends.
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise UsageError(
                "Another process is at work on this run.",
                why="it hangs, or was not killed",
                fix="end it, then resume",
            ) from error

    def release(self) -> None:
        """Let another process have the run."""
        self._opened.close()
        self._outside.close()
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None

    def new(self, party: str) -> KeptStateStore:
        """Return a store under a new key.

        Raises:
            UsageError: the key cannot be written.
        """
        key = new_key()
        try:
            self._lock()
            if not self._noted:
                self._keys.write(f"{self._run}/folder", self._place())
                self._noted = True
            self._keys.create(self._key_of(party), _OUTSIDE.pack(key, 0, bytes(32), 0))
        except OSError as error:
            raise UsageError(
                f"The keys of a run's kept state cannot be written ({error.strerror}).",
                why=f"they go to {self._keys.path}, and never into the run folder",
                fix=f"set {VARIABLE} to a folder of your own, or resume: false in the config",
            ) from error
        return self._state_store(party, key)

    def open(self, party: str) -> KeptStateStore:
        """Return a store that a killed run left.

        Raises:
            UsageError: its key is not here.
        """
        try:
            if not (data := self._keys.read(self._key_of(party))):
                raise FileNotFoundError
            self._lock()
        except OSError as error:
            raise UsageError(
                "This run cannot be resumed: the keys of its kept state are not here.",
                why="the run ended (its keys are then removed), was started with resume: false, "
                "or ran under another user",
                fix=f"look whether {VARIABLE} is set as it was; else start the run again",
            ) from error
        if len(data) != _OUTSIDE.size:
            raise _damaged()
        return self._state_store(party, _OUTSIDE.unpack(data)[0])

    def tidy(self) -> None:
        """Remove what a kill left of a run that ended, if it ran in this very folder.

        A roster names whichever run its writer likes: a folder from elsewhere removes no keys.

        Raises:
            UsageError: another process is at work on the run.
            LedgerError: a key is still there.
        """
        if self._keys.read(f"{self._run}/folder") == self._place():
            self._lock()
            self.destroy()

    def _place(self) -> bytes:
        return os.fsencode(self._folder.path.resolve())

    def destroy(self) -> None:
        """Remove all keys, and then the pieces that nobody can open any more.

        Raises:
            LedgerError: a key is still there.
        """
        self.release()
        self._keys.remove_tree(self._run)
        self._folder.remove_tree("private")
        if self._keys.there(self._run):
            place = self._keys.path / self._run
            raise LedgerError(
                f"The keys of this run's kept state could not be removed from {place}.",
                why="the folder is not writable",
                fix="remove it by hand: whoever has it and the run folder reads that state",
            )

    def _key_of(self, party: str) -> str:
        return f"{self._run}/{party}.key"

    def _state_store(self, party: str, key: bytes) -> KeptStateStore:
        self._parties += 1
        place, file = f"private/{party}", self._key_of(party)
        opened = self._opened, self._outside
        return KeptStateStore(self._folder, place, key, *opened, file, self._flush_now)
