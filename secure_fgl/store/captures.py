"""Where a run's captured rounds lie, and until when they can be read.

::

    RUN/captured/<party>/<piece>                         locked; never part of a bundle
    $SECURE_FGL_STATE/captures/<run>/<party>.key         the key to them, 0600
    $SECURE_FGL_STATE/captures/<run>/until               the day after which the keys are destroyed
    $SECURE_FGL_STATE/captures/<run>/folder              where that run folder lies

In a simulation all parties' keys lie in one place; a party of a run between organisations has its
own in ``keys/captures/`` of its folder. When the days of the policy are over, the next
command that starts a run or opens a run folder destroys the keys: what is left of the pieces, in
backups too, can then be read by nobody. Nothing destroys them while no command runs.

Each party's ledger names its pieces by the SHA-256 of their locked bytes, so `audit verify` and
`audit attack` hold them against it, the former without any key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from audits.evidence.captured_files import CapturedFiles, PieceFile
from crypto.aead import new_key
from protocols.errors import EvidenceError, SecureFglError
from protocols.evidence.ledger import read_lines
from protocols.versions import CAPTURE
from protocols.wire.roles import Role
from secure_fgl.errors import UsageError
from secure_fgl.isolation.kernel import close_memory
from secure_fgl.store.files import Folder, is_run_name, run_name
from secure_fgl.store.state_store import VARIABLE, FileStateStore, default_folder

if TYPE_CHECKING:
    from protocols.sessions.engine import Session
    from secure_fgl.run.parties import Making

__all__ = ["Captures", "found", "record", "sweep"]


_KEEPING = (Role.CLIENT, Role.AGGREGATOR, Role.TAG_SERVER, Role.MATCHER)


def record(
    sessions: Sequence[Session], making: Making, folder: Path, keys: Path | None = None
) -> None:
    """Let those who see more than ciphertexts keep the rounds that the policy wants captured.

    Args:
        sessions: of one run, in this process.
        making: what they were made of.
        folder: the run folder.
        keys: folder of all runs' keys; the default one if None.

    Raises:
        UsageError: the keys cannot be written.
    """
    capture = making.policy.capture
    for number, session in enumerate(sessions):
        captures = Captures(session.context.run, folder, keys)
        if not number:
            captures.sweep()
        if capture is not None and session.role in _KEEPING:
            captures.begin(capture.days)
            state_store = captures.state_store(session.name)
            captures.drop_unnamed(session.name, state_store)
            session.recorder = making.recorder(session.context, state_store, session.ledger)


def today() -> date:
    """Return the day (UTC)."""
    return datetime.now(UTC).date()


def sweep(captures: Path | None = None) -> None:
    """Destroy the keys of all runs whose days are over, or whose day cannot be read.

    A run that is just beginning, in another process, has neither day nor key: nothing is taken.

    Args:
        captures: the folder of all runs' keys to captures; the default one if None.
    """
    folder = Folder(default_folder() / "captures" if captures is None else captures)
    for run in filter(is_run_name, folder.folders()):  # nothing else there is ours to destroy
        try:
            until = folder.read(f"{run}/until")
            if not until and not folder.names(run, ".key"):
                continue
            over = date.fromisoformat(until.decode("ascii")) < today()
        except (OSError, ValueError, SecureFglError):
            over = True
        if over:
            folder.remove_tree(run)


def found(folder: Folder) -> CapturedFiles:
    """Return what lies in the captured rounds of a run folder; nothing is opened."""
    pieces, strays = {}, len(folder.names("captured"))
    for party in folder.folders("captured"):
        place = f"captured/{party}"
        names = folder.names(place)
        strays += len(folder.folders(place))
        summed = {name: folder.summed(f"{place}/{name}", len(CAPTURE.head)) for name in names}
        if summed:
            pieces[party] = {name: PieceFile(*one) for name, one in summed.items()}
    return CapturedFiles(pieces, strays, today())


class _RecordedStore(FileStateStore):
    """A store to read from, held to what the party's ledger names.

    Args:
        folder, name, key: see :class:`FileStateStore`.
        recorded: SHA-256 (hex) of each piece, by name.
    """

    def __init__(self, folder: Folder, name: str, key: bytes, recorded: Mapping[str, str]) -> None:
        super().__init__(folder, name, key)
        self._recorded = recorded

    def get(self, name: str) -> bytes | None:
        """Return a piece; raises EvidenceError for another one than the ledger names."""
        data = super().get(name)
        digest = hashlib.sha256(data or b"").hexdigest()
        if not hmac.compare_digest(digest, self._recorded.get(name, "")):
            raise EvidenceError("captured", "a captured piece is not the one that a ledger names")
        return data


class Captures:
    """The captured rounds of one run.

    Args:
        run: the run's name.
        folder: the run folder.
        keys: folder of all runs' keys; the default one if None.

    Raises:
        UsageError: that is no run's name.
    """

    def __init__(self, run: str, folder: Path, keys: Path | None = None) -> None:
        self._keys = Folder((keys or default_folder()) / "captures")
        self._run, self._folder = run_name(run), Folder(folder)

    def sweep(self) -> None:
        """Destroy the keys of all runs here whose days are over; see `sweep`."""
        sweep(self._keys.path)

    def forget(self, party: str) -> None:
        """Destroy a party's key, and the day of the run if no other party's key is left.

        The pieces are not touched.

        Raises:
            OSError: that is not possible.
        """
        self._keys.remove(self._key_of(party))
        if not self._keys.names(self._run, ".key"):
            self._keys.remove_tree(self._run)

    def begin(self, days: int) -> None:
        """Note until when captures may be read; once a run, so that no resumption prolongs it.

        Raises:
            UsageError: that cannot be written.
        """
        until = (today() + timedelta(days=days)).isoformat()
        try:
            if self._keys.read(f"{self._run}/until"):
                return
            place = os.fsencode(self._folder.path.resolve())
            self._keys.write(f"{self._run}/folder", place)
            # As a whole, and before any key: who sweeps meanwhile sees no day, or this one.
            self._keys.write(f"{self._run}/until", until.encode())
        except OSError as error:
            raise self._unwritable(error) from error

    def state_store(self, party: str) -> FileStateStore:
        """Return a party's store to write to, under its key, which is made when it is first needed.

        Raises:
            UsageError: the key cannot be written.
        """
        try:
            self._keys.create(self._key_of(party), new_key())
        except FileExistsError:
            pass  # of a run that goes on after a kill
        except OSError as error:
            raise self._unwritable(error) from error
        return FileStateStore(
            self._folder, f"captured/{party}", self._keys.read(self._key_of(party))
        )

    def drop_unnamed(self, party: str, state_store: FileStateStore) -> None:
        """Remove pieces that a killed party wrote, and was killed before its ledger named them."""
        names = self._folder.names(f"captured/{party}")
        if names:
            lines = read_lines(self._folder.read(f"ledger/{party}.jsonl"))
            named = {entry["piece"] for entry, _ in lines if entry["kind"] == "captured"}
            for name in set(names) - named:
                state_store.drop(name)

    def open(self, party: str, recorded: Mapping[str, str]) -> FileStateStore:
        """Return a party's store to read from.

        Args:
            party: whose.
            recorded: SHA-256 (hex) of each piece, as the party's ledger names them.

        Raises:
            EvidenceError: at step ``captured``, when a piece is read that no ledger names so.
            UsageError: the keys are not here, or their days are over; then they are destroyed.
        """
        self.sweep()
        close_memory()
        if not (key := self._keys.read(self._key_of(party))):
            raise UsageError(
                "The captured rounds of this run cannot be read: their keys are not here.",
                why="their days are over, the policy forbids capture, or the run was made by "
                "another user or on another machine",
                fix=f"look whether {VARIABLE} is set as it was; else only what needs no capture "
                "can be audited",
            )
        return _RecordedStore(self._folder, f"captured/{party}", key, recorded)

    def _key_of(self, party: str) -> str:
        return f"{self._run}/{party}.key"

    def _unwritable(self, error: OSError) -> UsageError:
        return UsageError(
            f"The keys of captured rounds cannot be written ({error.strerror}).",
            why=f"they go to {self._keys.path}, and never into the run folder",
            fix=f"set {VARIABLE} to a folder of your own, or capture: null in the policy",
        )
