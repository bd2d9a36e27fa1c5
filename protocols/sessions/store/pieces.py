"""Long values of a party's kept state, each written once however many states hold it.

A state is kept before every message, and most of it is what the last one held already: a model,
its optimiser's moments, an upload that waits. Values from some size on lie in pieces of their own,
`part-NAME`, where NAME is a keyed digest of the content: equal content is one part, and a part
never changes. So a state names its parts, and only what is new is written. A part that no piece
names any more is removed after the piece that dropped it was replaced; what a kill leaves over is
removed on resuming.

Who sees what: whoever lists the store sees which states hold a value in common and how long it is,
and no value: digests are under the party's store key, and parts are locked as all pieces are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from crypto.samplers import derive
from protocols.sessions.store.codec import Buffer, StateCodec

_PREFIX = "part-"


class Store(Protocol):
    """A store that locks what it gets."""

    @property
    def key(self) -> bytes:
        """The party's store key, 32 bytes."""

    def put(self, name: str, data: bytes) -> object:
        """Write or replace a piece."""

    def get(self, name: str) -> bytes:
        """Return a piece."""

    def drop(self, name: str) -> None:
        """Remove a piece, if it is there."""

    def names(self) -> Iterable[str]:
        """Return the names of all pieces."""


class Pieces:
    """The pieces of one party's state and the parts that they share.

    Args:
        store: where both lie; raises LedgerError where that fails.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = derive(store.key, "parts")
        self._parts: set[str] = set()
        self._of: dict[str, set[str]] = {}
        self._names: dict[int, tuple[bytes, str]] = {}

    def put(self, piece: str, codec: StateCodec, value: object) -> None:
        """Keep a value as a piece; its new parts are written first."""
        used: set[str] = set()

        def apart(data: Buffer) -> str:
            name = self._name(data)
            if name not in self._parts:
                self._store.put(name, bytes(data))
                self._parts.add(name)
            used.add(name)
            return name

        self._store.put(piece, codec.pack(value, apart))
        self._of[piece] = used

    def _name(self, data: Buffer) -> str:
        if (known := self._names.get(id(data))) is not None:
            return known[1]
        name = _PREFIX + derive(self._key, hashlib.sha256(data).digest()).hex()
        if isinstance(data, bytes):  # never changes, and is held here: its id stays its own
            self._names[id(data)] = (data, name)
        return name

    def get(self, piece: str, codec: StateCodec, only: Sequence[str] = ()) -> Any:
        """Return a kept value, or of a mapping just these keys."""
        used: set[str] = set()

        def fetch(name: str) -> bytes:
            used.add(name)
            return self._store.get(name)

        found = codec.unpack(self._store.get(piece), fetch, only)
        self._of[piece] = used
        self._parts |= used
        return found

    def drop(self, piece: str) -> None:
        """Remove a piece, if it is there; its parts stay until `sweep`."""
        self._store.drop(piece)
        self._of.pop(piece, None)

    def sweep(self) -> None:
        """Remove the parts that no piece names any more."""
        for name in self._parts - set().union(*self._of.values()):
            self._store.drop(name)
            self._parts.discard(name)
        held = self._names.items()
        self._names = {place: known for place, known in held if known[1] in self._parts}

    def found(self) -> list[str]:
        """Return the names of all pieces in the store, and take note of all parts there."""
        names = list(self._store.names())
        self._parts = {name for name in names if name.startswith(_PREFIX)}
        return [name for name in names if name not in self._parts]
