"""Long values of a party's kept state, each written once however many commits name it.

Most of what a party holds is what it held before: a model, its optimiser's moments, an upload that
waits. Values from some size on lie in files of their own beside the journal, `part-N`, each locked
under a key of its own, which stands in the journal with the file's number. Names are drawn. A value
that is held already keeps its name, so it is not written again: bytes are known by being the very
object, arrays by a keyed digest of their content, which never leaves this process.

The file of a value that no cell names any more, once the commit that dropped it is written, is
overwritten by the next value, or removed: that is several times as fast as new files, and nothing
of what was dropped stays. What a kill leaves over is removed on resuming. Once the journal is
written anew, nobody has the key of a value that was dropped.

Who sees what: whoever lists the store sees about how long these values are, and no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol

from crypto.aead import OVERHEAD, fingerprint, lock_into, unlock
from crypto.errors import CryptoError
from crypto.samplers import entropy
from protocols.errors import LedgerError
from protocols.sessions.store.codec import Buffer
from protocols.sessions.store.journal import unopened, unwritten

__all__ = ["Piece", "PieceStore", "Pieces"]

_PREFIX = "part-"
_BUFFERS: list[bytearray] = []  # used again, as fresh memory costs more than locking; one a thread


class PieceStore(Protocol):
    """Where long values lie. All methods raise OSError."""

    def patch(self, name: str, writes: Iterable[tuple[int, Buffer]]) -> None:
        """Write bytes at places of a file, in order; a file that is not there is made."""

    def get(self, name: str) -> bytes | None:
        """Return a file's bytes, None if there is none."""

    def drop(self, name: str) -> None:
        """Remove a file, if it is there."""

    def names(self) -> Iterable[str]:
        """Return the names of all files."""


@dataclass(frozen=True)
class Piece:
    """One long value.

    Attributes:
        key: under which it is locked, and nothing else.
        file: number of its file.
        size: of its bytes there; what follows them is of another value before it.
    """

    key: bytes = field(repr=False)
    file: int
    size: int

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{_PREFIX}{self.file}"


class Pieces:
    """The long values of one party's state.

    Args:
        store: where they lie.
        place: what they are bound to: run and party.
    """

    def __init__(self, store: PieceStore, place: str) -> None:
        self._store, self._place = store, place
        self._digests = entropy(32)  # key of the digests, its own in each process
        self._names: dict[bytes | int, str] = {}  # by digest, or by identity
        self._held: dict[str, tuple[bytes | int, Buffer | None]] = {}  # that, and whose identity
        self._pieces: dict[str, Piece] = {}
        self._kept: set[str] = set()  # those that the journal knows of
        self._stale: list[str] = []
        self._free: list[tuple[int, int]] = []  # files that may be overwritten: length and number
        self._files = 0

    def apart(self, data: Buffer) -> str:
        """Return the name of a value, which is written if it is new; raises LedgerError."""
        fixed = type(data) is bytes
        known = id(data) if fixed else fingerprint(self._digests, data)
        if (name := self._names.get(known)) is not None:
            return name
        name, size = entropy(16).hex(), len(data) + OVERHEAD
        piece = Piece(entropy(32), self._place_for(size), size)
        buffer = _taken()
        try:
            locked = lock_into(piece.key, self._info(name), data, buffer)
            self._store.patch(piece.name, [(0, locked)])
        except OSError as error:
            raise unwritten(error) from error
        locked.release()
        _BUFFERS.append(buffer)
        self._pieces[name], self._names[known] = piece, name
        self._held[name] = known, data if fixed else None  # held, so that its id stays its own
        return name

    def _place_for(self, size: int) -> int:
        """Return the number of the smallest free file that is no shorter, or of a new one."""
        fitting = [found for found in self._free if size <= found[0] <= 2 * size]
        if fitting:
            self._free.remove(min(fitting))
            return min(fitting)[1]
        self._files += 1
        return self._files

    def settle(self, named: Set[str], *, anew: bool) -> tuple[dict[str, Piece], list[str]]:
        """Return the values that the next line must tell, and the names that it must drop.

        Args:
            named: all that the state names from now on.
            anew: the line begins a journal.
        """
        self._stale = [name for name in self._pieces if name not in named]
        fresh = named if anew else named - self._kept
        made = {name: self._pieces[name] for name in fresh}
        return made, [] if anew else [name for name in self._stale if name in self._kept]

    def sweep(self) -> None:
        """Let go of what the last line dropped, once that is written; raises LedgerError."""
        for name in self._stale:
            piece = self._pieces.pop(name)
            if (held := self._held.pop(name, None)) is not None:
                del self._names[held[0]]
            self._free.append((piece.size, piece.file))
        self._kept, self._stale = set(self._pieces), []
        # No more than what is held: the longest go first.
        self._free.sort()
        while len(self._free) > len(self._kept):
            self._remove(f"{_PREFIX}{self._free.pop()[1]}")

    def take_up(self, pieces: Mapping[str, Piece]) -> None:
        """Take over the values that a journal names."""
        self._pieces, self._kept = dict(pieces), set(pieces)
        self._files = max((piece.file for piece in pieces.values()), default=0)

    def get(self, name: str) -> bytes:
        """Return a value; raises LedgerError if it is missing, or is another one."""
        piece = self._pieces.get(name)
        locked = self._store.get(piece.name) if piece is not None else None
        if piece is None or locked is None:
            raise LedgerError(
                "A part of a kept state is missing.",
                why="it was removed from the run folder",
                fix="start the run again",
            )
        try:
            return unlock(piece.key, self._info(name), locked[: piece.size])
        except CryptoError as error:
            raise unopened("a part of it was changed, or is another run's") from error

    def tidy(self) -> None:
        """Remove the files of what no line names; raises LedgerError."""
        held, self._free = {piece.name for piece in self._pieces.values()}, []
        for name in list(self._store.names()):
            if name.startswith(_PREFIX) and name not in held:
                self._remove(name)

    def _remove(self, name: str) -> None:
        try:
            self._store.drop(name)
        except OSError as error:
            raise unwritten(error) from error

    def _info(self, name: str) -> bytes:
        return f"{self._place}/part/{name}".encode()


def _taken() -> bytearray:
    """Return a buffer that nobody else uses until it is given back."""
    try:
        return _BUFFERS.pop()
    except IndexError:
        return bytearray()
