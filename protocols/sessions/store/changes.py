"""What changed of a state since it was kept last, as cells.

A state is a tree: its inner nodes are objects that change in place, its leaves are their
attributes. A leaf is one cell or more, each named by the leaf's path and a number:

    PATH#0      how the leaf is to be read, and its value where that is one
    PATH#N      of a dictionary: one entry; of a set, or of a dictionary of whole numbers: what was
                added since, as these only grow

What can never change (numbers, texts, bytes, messages, tuples of them) is known by being the very
object that was kept, and is not written down again. Everything else is written down and compared.
`protocols.sessions.store.cells` reads a state out of its cells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from protocols.keys.pairs import Pairs
from protocols.sessions.store.cells import ENTRIES, GROWING, NAMED, OBJECT, PAIRS, WHOLE
from protocols.sessions.store.codec import Apart, StateCodec
from protocols.sessions.store.fields import attributes, is_flat
from protocols.sessions.store.kept_kinds import objects
from protocols.sessions.store.writing import Cell, Writing, is_frozen, is_same

__all__ = ["Changes"]

_NONE: Final = object()
_APART: Final = frozenset("/#")  # what stands between the names and numbers of cells


class _Leaf:
    """One leaf as it was written last.

    Attributes:
        kind: how it is read.
        base: the cell with number 0.
        cells: of a dictionary, the cells of its entries by key; else by number.
        held: of what grows, all that was kept; of a dictionary whose values never change, a copy.
        next: number of the next cell.
    """

    __slots__ = ("base", "cells", "held", "kind", "next")

    def __init__(self, kind: bytes, base: Cell, held: Any = None) -> None:
        self.kind, self.base, self.held, self.next = kind, base, held, 1
        self.cells: dict[Any, Cell] = {}

    def all(self) -> list[Cell]:
        """Return all cells."""
        return [self.base, *self.cells.values()]


class Changes:
    """What was kept last of one state, and what is new since.

    Attributes:
        cells: what is new or changed, by name.
        gone: names of cells that are there no more.
    """

    def __init__(self) -> None:
        self._leaves: dict[str, _Leaf] = {}
        self._named: dict[str, set[str]] = {}  # long values by path
        self._here: set[str] = set()
        self._changed: set[str] = set()
        self.cells: dict[str, bytes] = {}
        self.gone: list[str] = []

    def since(self, state: Mapping[str, Any], codec: StateCodec, apart: Apart) -> set[str]:
        """Put what is new since the last call into `cells` and `gone`.

        Args:
            state: by path, which holds "/" between its names.
            codec: of the party.
            apart: keeps long bytes elsewhere and returns their name.

        Returns:
            The paths of all leaves that changed.

        Raises:
            LocalProtocolError: the state holds something that cannot be kept.
        """
        self.cells, self.gone = {}, []
        self._here, self._changed = set(), set()
        writing = Writing(codec, apart)
        for path, value in state.items():
            self._visit(path, value, writing)
        if len(self._here) < len(self._leaves):
            for place in self._leaves.keys() - self._here:
                self._drop(place)
                self._changed.add(place)
        for place in self._changed:
            leaf = self._leaves.get(place)
            self._named[place] = {n for cell in leaf.all() for n in cell.parts} if leaf else set()
        return self._changed

    def _visit(self, path: str, value: Any, writing: Writing) -> None:
        """Note what changed there; what changes in place is opened, attribute by attribute."""
        self._here.add(path)
        known = self._leaves.get(path)
        if known is not None and known.base.fixed and known.base.value is value:
            return  # most are
        opened = _opened(value, writing)
        if opened is None:
            if self._leaf(path, value, writing):
                self._changed.add(path)
            return
        mark, inner = opened
        if self._mark(path, mark):
            self._changed.add(path)
        for name, item in inner.items():
            self._visit(f"{path}/{name}", item, writing)

    def named(self) -> set[str]:
        """Return the names of all long values that the state names."""
        return set().union(*self._named.values())

    def _drop(self, place: str) -> None:
        leaf = self._leaves.pop(place, None)
        if leaf is not None:
            self.gone += [f"{place}#{cell.number}" for cell in leaf.all()]

    def _put(self, place: str, cell: Cell) -> Cell:
        self.cells[f"{place}#{cell.number}"] = cell.data
        return cell

    def _mark(self, place: str, mark: bytes) -> bool:
        leaf = self._leaves.get(place)
        if leaf is not None and leaf.kind == mark:
            return False
        self._drop(place)
        self._leaves[place] = _Leaf(mark, self._put(place, Cell(0, mark)))
        return True

    def _leaf(self, place: str, value: Any, writing: Writing) -> bool:
        leaf = self._leaves.get(place)
        kind = _kind(value, leaf)
        if leaf is not None and leaf.kind == kind:
            before = len(self.gone)
            if kind == WHOLE:
                if (cell := writing.cell(leaf.base, WHOLE, value, value)) is not None:
                    leaf.base = self._put(place, cell)
                return cell is not None
            done = self._more(place, leaf, value, writing)
            if done is not None:
                return done
            del self.gone[before:]
            for cell in leaf.all():
                self.cells.pop(f"{place}#{cell.number}", None)
            kind = _kind(value, None)
        self._drop(place)
        self._new(place, kind, value, writing)
        return True

    def _new(self, place: str, kind: bytes, value: Any, writing: Writing) -> None:
        if kind == ENTRIES:
            base, held = Cell(0, kind), None
        else:
            base = writing.cell(None, kind, value, value) or Cell(0, kind)
            held = type(value)(value) if kind == GROWING else None
        leaf = self._leaves[place] = _Leaf(kind, self._put(place, base), held)
        if kind == ENTRIES:
            self._more(place, leaf, value, writing)

    def _more(self, place: str, leaf: _Leaf, value: Any, writing: Writing) -> bool | None:
        """Write down what changed; None where that cannot be said by adding and dropping."""
        if leaf.kind == ENTRIES:
            return self._entries(place, leaf, value, writing)
        more = _added(leaf.held, value)
        if not more:
            return None if more is None else False
        cell = writing.cell(None, b"", more, more)
        if cell is not None:
            cell.number, leaf.next = leaf.next, leaf.next + 1
            leaf.cells[cell.number] = self._put(place, cell)
        return True

    def _entries(
        self, place: str, leaf: _Leaf, value: dict[Any, Any], writing: Writing
    ) -> bool | None:
        cells = leaf.cells
        if leaf.held is not None and is_same(leaf.held, value):
            return False
        gone = [key for key in cells if key not in value] if cells else []
        for key in gone:
            self.gone.append(f"{place}#{cells[key].number}")
        changed = bool(gone)
        for key, item in value.items():
            known = cells.get(key)
            if known is not None and known.fixed:
                before = known.value
                if before is item or (type(item) is bytes and before == item):
                    continue
            cell = writing.cell(known, b"", item, (key, item))
            if cell is None:
                continue
            if known is None:
                cell.number, leaf.next = leaf.next, leaf.next + 1
            cells[key] = self._put(place, cell)
            changed = True
        # What was taken out and put in again between two commits stands elsewhere now.
        if [key for key in cells if key in value] != list(value):
            return None
        for key in gone:
            del cells[key]
        same = all([cells[key].value is item for key, item in value.items()])
        leaf.held = dict(value) if same else None
        return changed


def _added(held: Any, value: Any) -> Any:
    """Return what was added to what grows, and note it; None where it did something else."""
    if type(value) is set:
        more: Any = value - held
        held |= more
        fits = len(held) == len(value)
        return more if fits and is_flat(more) else None
    before = len(held)
    if list(islice(value, before)) == list(held) and (
        list(islice(value.values(), before)) == list(held.values())
    ):
        more = dict(islice(value.items(), before, None))  # most: what was there is as it was
    else:
        more = {k: v for k, v in value.items() if held.get(k, _NONE) != v}
    held |= more
    fits = len(held) == len(value) and (not more or list(held) == list(value))
    flat = fits and is_flat(more) and all(type(item) is int for item in more.values())
    return more if flat else None


def _kind(value: Any, leaf: _Leaf | None) -> bytes:
    kind = type(value)
    if kind is not dict and kind is not set:
        return WHOLE
    if leaf is not None and leaf.kind == GROWING and type(leaf.held) is kind:
        return GROWING
    flat = bool(value) and type(next(iter(value))) is tuple and is_flat(value)
    if kind is dict:
        flat = flat and all(type(item) is int for item in value.values())
        return GROWING if flat else ENTRIES
    return GROWING if flat else WHOLE


def _opened(value: Any, writing: Writing) -> tuple[bytes, Mapping[str, Any]] | None:
    """Return what opens to more leaves: its mark, and what is in it by name; None if it is one."""
    kind: Any = type(value)
    if kind is dict:
        if value and all(map(_is_open, value.keys(), value.values())):
            return NAMED + json.dumps(list(value)).encode(), value
    elif kind is Pairs:
        return PAIRS, value.kept()
    elif _is_open("", value) and not writing.names(value):
        return OBJECT + kind.__name__.encode(), attributes(value)
    return None


def _is_open(name: object, value: Any) -> bool:
    """Tell whether a value changes in place and is ours, under a name that can be in a path."""
    kind: Any = type(value)
    if objects().get(kind.__name__) is not kind or is_frozen(kind):
        return False
    return type(name) is str and not _APART.intersection(name)
