"""Pieces that are locked under a party's store key before a store gets them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

from crypto.aead import lock_at_rest, unlock_at_rest
from crypto.errors import CryptoError
from protocols.errors import LedgerError, OtherState
from protocols.sessions.store.journal import unopened, unwritten
from protocols.versions import STATE, Format

__all__ = ["LockedStateStore", "StateStore"]


class StateStore(Protocol):
    """One party's pieces of state in one run."""

    @property
    def key(self) -> bytes:
        """The party's store key, 32 bytes; it does not lie beside the pieces."""

    def put(self, name: str, data: bytes) -> None:
        """Write or replace a piece as a whole; raises OSError."""

    def get(self, name: str) -> bytes | None:
        """Return a piece, None if there is none."""

    def drop(self, name: str) -> None:
        """Remove a piece, if it is there."""

    def names(self) -> Iterable[str]:
        """Return the names of all pieces."""


class LockedStateStore:
    """Locks pieces before a store gets them.

    Args:
        state_store: where they lie.
        run: the run's name, to which they are bound.
        party: whose they are.
        format: what they are, and of which version; they are bound to both.
    """

    def __init__(
        self, state_store: StateStore, run: str, party: str, format: Format = STATE
    ) -> None:
        self._state_store, self._format = state_store, format
        self.place = f"secure-fgl/{format.name}/{format.version}/{run}/{party}"
        self.key, self.names = state_store.key, state_store.names

    def put(self, name: str, data: bytes) -> str:
        """Lock and write a piece, and return the SHA-256 (hex) of what was written.

        Raises:
            LedgerError: it cannot be written.
        """
        locked = lock_at_rest(self._state_store.key, f"{self.place}/{name}".encode(), data)
        written = self._format.head + locked
        try:
            self._state_store.put(name, written)
        except OSError as error:
            raise unwritten(error) from error
        return hashlib.sha256(written).hexdigest()

    def drop(self, name: str) -> None:
        """Remove a piece; raises LedgerError if it cannot be removed."""
        try:
            self._state_store.drop(name)
        except OSError as error:
            raise unwritten(error) from error

    def get(self, name: str) -> bytes:
        """Return a piece.

        Raises:
            OtherState: it is of another version.
            LedgerError: it is missing, or not what was put.
        """
        found = self._state_store.get(name)
        if found is not None:
            if not self._format.begins(found, OtherState):
                raise unopened("it is no piece of ours, or was cut or changed")
            locked = found[len(self._format.head) :]
            try:
                return unlock_at_rest(
                    self._state_store.key, f"{self.place}/{name}".encode(), locked
                )
            except CryptoError as error:
                raise unopened("it was changed, or its key is another run's") from error
        raise LedgerError(
            "A kept state is missing.",
            why="the run ended, was never kept, or the state was removed",
            fix="start the run again",
        )
