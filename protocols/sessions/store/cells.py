"""A state out of its cells; see `protocols.sessions.store.changes`, which makes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from protocols.errors import LocalProtocolError
from protocols.sessions.store.codec import StateCodec
from protocols.sessions.store.kept_kinds import objects

__all__ = ["ENTRIES", "GROWING", "NAMED", "OBJECT", "PAIRS", "WHOLE", "state_of"]

WHOLE: Final = b"W"
ENTRIES: Final = b"D"
GROWING: Final = b"G"
NAMED: Final = b"N"
OBJECT: Final = b"O"
PAIRS: Final = b"P"
"""What the first cell of a leaf begins with."""

Fetch = Callable[[str], bytes]


class _Node:
    """A place of the tree: its cells by number, and what lies below it."""

    def __init__(self) -> None:
        self.cells: dict[int, bytes] = {}
        self.inner: dict[str, _Node] = {}


def state_of(cells: Mapping[str, bytes], codec: StateCodec, fetch: Fetch) -> dict[str, Any]:
    """Return a state, whose parts are dictionaries where its paths branch.

    Args:
        cells: by name; authenticated.
        codec: of the party.
        fetch: returns a long value by its name.

    Raises:
        LocalProtocolError: they are no state.
    """
    root = _Node()
    for name, data in cells.items():
        path, _, number = name.rpartition("#")
        node = root
        for step in path.split("/"):
            node = node.inner.setdefault(step, _Node())
        node.cells[int(number)] = data
    return {name: _read(node, codec, fetch) for name, node in root.inner.items()}


def _read(node: _Node, codec: StateCodec, fetch: Fetch) -> Any:
    inner = {name: _read(one, codec, fetch) for name, one in node.inner.items()}
    if not node.cells:
        return inner
    numbers = sorted(node.cells)
    base = node.cells[0]
    kind, data = base[:1], base[1:]
    more = [codec.unpack(node.cells[number], fetch) for number in numbers if number]
    if kind == WHOLE:
        return codec.unpack(data, fetch)
    if kind == ENTRIES:
        return dict(more)
    if kind == GROWING:
        grown = codec.unpack(data, fetch)
        for one in more:
            grown |= one
        return grown
    if kind == NAMED:
        return {name: inner[name] for name in json.loads(data)}
    if kind == PAIRS:
        return codec.pairs(inner)
    if kind == OBJECT:
        return _object(objects()[data.decode()], inner)
    raise LocalProtocolError("A kept state holds a cell of no known kind.")


def _object(kind: type[Any], attributes: Mapping[str, Any]) -> Any:
    made = object.__new__(kind)
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made
