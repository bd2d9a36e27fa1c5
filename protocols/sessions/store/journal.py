"""The journal of one party's state: a line for every commit, with what changed and nothing else.

A state is cells: small values by name, each locked by itself. A line holds

* its head, locked under the journal's key: the commit's number, where the ledger stands, which
  cells are new, the key of these, and which are gone;
* the new cells, each locked, and destroyed, by itself: the keys of long values are such cells.

A cell that a later line replaced or dropped is overwritten with zeros once that line is written, so
that what a party used up lies in no file any more. From time to time, and when an epoch of keys
ends, the whole state is written into a new journal under a new key, and the old key is overwritten:
whoever has kept a copy of the old files then reads nothing in them.

The journal's key and the number of the last commit lie outside the run folder (`Standing`). A
journal whose last line is older than that number was put back, and is refused, even if the ledger
was put back with it. A last line that was cut short is no commit.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgpack

from crypto.aead import lock_at_rest, lock_each, new_key, unlock_at_rest, unlock_one
from crypto.errors import CryptoError
from crypto.samplers import entropy
from protocols.errors import LedgerError, OtherState
from protocols.versions import STATE

__all__ = ["Journal", "JournalStore", "Standing", "unopened", "unwritten"]

_LENGTHS = struct.Struct("<II")  # bytes of a line's head, bytes of its cells
_SMALLEST = 1 << 16  # bytes below which a journal is never written anew for its size
_GROWTH = 4  # times its first line that a journal may grow before it is written anew
_NAME = re.compile(r"journal-\d+")
_PIECE = "#part/"  # begins the name of a cell that holds a long value's key; no other's does


@dataclass(frozen=True)
class Standing:
    """What of a party's state lies outside the run folder.

    Attributes:
        generation: of the journal; 0 before there is one.
        key: of the journal, 32 bytes.
        number: of the last commit.
    """

    generation: int = 0
    key: bytes = field(default=bytes(32), repr=False)
    number: int = 0


class JournalStore(Protocol):
    """Where one party's journal lies. All methods raise OSError."""

    def standing(self) -> Standing:
        """Return what lies outside the run folder."""

    def turn(self, standing: Standing, *, flush: bool) -> None:
        """Overwrite what lies outside, and the old key with it."""

    def advance(self, number: int, *, flush: bool) -> None:
        """Overwrite the number of the last commit."""

    def patch(self, name: str, writes: Iterable[tuple[int, bytes | memoryview]]) -> None:
        """Write bytes at places of a file, in order; a file that is not there is made."""

    def get(self, name: str) -> bytes | None:
        """Return a file's bytes, None if there is none."""

    def drop(self, name: str) -> None:
        """Remove a file, if it is there."""

    def names(self) -> Iterable[str]:
        """Return the names of all files."""


@dataclass(frozen=True)
class Line:
    """One commit, as far as it is no cell.

    Attributes:
        number: of the commit.
        ledger: where the ledger stands, see `Ledger.facts`.
        pieces: long values that lie beside the journal: key, file and length of each, by name.
    """

    number: int
    ledger: Mapping[str, Any]
    pieces: Mapping[str, tuple[bytes, int, int]] = field(repr=False)


class _Told(NamedTuple):
    """A cell as a line's head tells it: the line's key, its number there, and where it lies."""

    key: bytes
    number: int
    at: int
    size: int


class Journal:
    """The journal of one party.

    Args:
        store: where it lies.
        place: what it is bound to: run and party.
    """

    def __init__(self, store: JournalStore, place: str) -> None:
        self._store, self._place = store, f"{place}/journal"
        self._standing = Standing()
        self._size = self._first = 0
        self._cells: dict[str, tuple[int, int]] = {}  # where each cell lies, and how long it is

    @property
    def number(self) -> int:
        """Of the last commit."""
        return self._standing.number

    @property
    def grown(self) -> bool:
        """Whether there is no journal yet, or it should be written anew for its size."""
        return self._size > max(_SMALLEST, _GROWTH * self._first) or not self._size

    def write(
        self,
        ledger: Mapping[str, Any],
        cells: Mapping[str, bytes],
        gone: Iterable[str],
        pieces: tuple[Mapping[str, tuple[bytes, int, int]], Iterable[str]],
        *,
        anew: bool = False,
        flush: bool = False,
    ) -> None:
        """Write one commit.

        Args:
            ledger: where the ledger stands.
            cells: what is new or changed, by name.
            gone: names of cells that are dropped.
            pieces: new long values, and the names of those that are dropped; see `Line`.
            anew: `cells` and `pieces` are the whole state, for a new journal under a new key.
            flush: what lies outside the run folder must outlive a loss of power.

        Raises:
            LedgerError: it cannot be written.
        """
        if anew:
            self._cells, at = {}, len(STATE.head)
            key, generation = new_key(), self._standing.generation + 1
        else:
            at, key, generation = self._size, self._standing.key, self._standing.generation
        number = self._standing.number + 1
        standing = Standing(generation, key, number)
        # Not in the head, which stays: what a party used up must not open in a file that it left.
        made = {_PIECE + name: msgpack.packb(facts) for name, facts in pieces[0].items()}
        cells = {**cells, **made}
        head = [number, dict(ledger), [*gone, *(_PIECE + name for name in pieces[1])]]
        data, stale = self._line(self._sealing(standing, first=anew), at, head, cells)
        size = at + len(data)
        # Until all of it is done: what was cut short here is written anew, not gone on with.
        self._size = 0
        try:
            if anew:
                self._begin(standing, data, flush=flush)
            else:
                self._store.patch(self._name(generation), [(at, data), *stale])
                self._store.advance(number, flush=flush)
        except OSError as error:
            raise unwritten(error) from error
        self._standing, self._size = standing, size
        self._first = size if anew else self._first

    def _begin(self, standing: Standing, line: bytes, *, flush: bool) -> None:
        name = self._name(standing.generation)
        self._store.drop(name)  # of before a kill
        self._store.patch(name, [(0, STATE.head + line)])
        self._store.turn(standing, flush=flush)
        self._store.drop(self._name(standing.generation - 1))

    def _line(
        self, sealing: tuple[bytes, bytes], at: int, head: list[Any], cells: Mapping[str, bytes]
    ) -> tuple[bytes, list[tuple[int, bytes]]]:
        """Return a line, and what is overwritten after it."""
        key, bound = entropy(32), f"{self._place}/".encode()
        named = [(bound + name.encode(), data) for name, data in cells.items()]
        locked = lock_each(key, named)
        sizes = list(map(len, locked))
        sealed = lock_at_rest(*sealing, msgpack.packb([*head, key, list(cells), sizes]))
        first = at + _LENGTHS.size + len(sealed)
        replaced = dict.fromkeys((*cells, *head[2]))
        stale = [self._cells.pop(name) for name in replaced if name in self._cells]
        for name, size in zip(cells, sizes, strict=True):
            self._cells[name] = first, size
            first += size
        line = b"".join((_LENGTHS.pack(len(sealed), sum(sizes)), sealed, *locked))
        return line, [(where, bytes(size)) for where, size in stale]

    def read(self) -> tuple[Line, dict[str, bytes]]:
        """Return the last commit and all cells as they stood then.

        Raises:
            LedgerError: there is no journal, it was changed, or it is older than the last commit.
            OtherState: it is of another version.
        """
        standing = self._standing = self._store.standing()
        data = self._store.get(self._name(standing.generation))
        if not standing.generation or data is None:
            raise LedgerError(
                "A kept state is missing.",
                why="the run ended, was never kept, or the state was removed or put back",
                fix="start the run again",
            )
        if not STATE.begins(data, OtherState):
            raise unopened("it is no journal of ours, or was cut or changed")
        number, ledger, told = self._lines(memoryview(data), standing)
        if number < standing.number:
            raise LedgerError(
                "A kept state is older than the last commit of its party.",
                why="it was put back from a backup, perhaps together with its ledger, or cut",
                fix="start the run again; a state that was put back may not go on (O5, O6)",
            )
        self._standing = Standing(standing.generation, standing.key, number)
        cells = {name: self._cell(name, data, one) for name, one in told.items()}
        parts = [name for name in cells if name.startswith(_PIECE)]
        pieces = {name.removeprefix(_PIECE): msgpack.unpackb(cells.pop(name)) for name in parts}
        return Line(number, ledger, pieces), cells

    def _lines(
        self, data: memoryview, standing: Standing
    ) -> tuple[int, Mapping[str, Any], dict[str, _Told]]:
        at, number = len(STATE.head), 0
        ledger: Mapping[str, Any] = {}
        told: dict[str, _Told] = {}
        while len(data) >= at + _LENGTHS.size:
            head, cells = _LENGTHS.unpack_from(data, at)
            start = at + _LENGTHS.size
            if start + head + cells > len(data):
                break  # cut short by a kill: nothing of that commit left
            sealing = self._sealing(standing, first=not number)
            found = self._opened(data[start : start + head], *sealing)
            if number and found[0] != number + 1:
                raise unopened("a line of its journal is missing")
            number, ledger, gone, key, names, sizes = found
            for name in gone:
                told.pop(name, None)
            at = start + head
            for place, (name, size) in enumerate(zip(names, sizes, strict=True)):
                told.pop(name, None)  # in the order of the last writing
                told[name] = _Told(key, place, at, size)
                at += size
        return number, ledger, told

    def _opened(self, sealed: memoryview, key: bytes, info: bytes) -> Any:
        try:
            plain = unlock_at_rest(key, info, bytes(sealed))
        except CryptoError as error:
            raise unopened("it was changed, or its key is another run's") from error
        return msgpack.unpackb(plain, strict_map_key=True)

    def _cell(self, name: str, data: bytes, one: _Told) -> bytes:
        info, locked = f"{self._place}/{name}".encode(), data[one.at : one.at + one.size]
        try:
            return unlock_one(one.key, one.number, info, locked)
        except CryptoError as error:
            raise unopened("it was changed") from error

    def strays(self) -> list[str]:
        """Return the names of journals that are not the one that counts."""
        here = self._name(self._standing.generation)
        return [name for name in self._store.names() if _NAME.fullmatch(name) and name != here]

    def _sealing(self, standing: Standing, *, first: bool) -> tuple[bytes, bytes]:
        """Return the key of a line's head and what it is bound to; only the first may be first."""
        return standing.key, f"{self._place}/{standing.generation}/{first}".encode()

    def _name(self, generation: int) -> str:
        return f"journal-{generation}"


def unopened(why: str) -> LedgerError:
    """Return the error of a state that does not open."""
    return LedgerError("A kept state does not open.", why=why, fix="start the run again")


def unwritten(error: OSError) -> LedgerError:
    """Return the error of a state that cannot be written."""
    return LedgerError(
        f"The state of a party cannot be kept ({error.strerror or type(error).__name__}).",
        why="the disk is full, or the folder is not writable",
        fix="free some space and start the run again; nothing of this exchange was sent",
    )
