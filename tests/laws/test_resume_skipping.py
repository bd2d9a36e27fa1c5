"""Law: what is kept by writing only what changed is what writing everything keeps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from crypto.homomorphic.bfv_parts import PublicKey, SecretKey
from protocols.keys.pairs import Pairs
from protocols.messages import Message
from protocols.sessions.store import changes, writing
from protocols.sessions.store.cells import state_of
from protocols.sessions.store.changes import Changes
from protocols.sessions.store.fields import attributes
from protocols.sessions.store.journal import Journal
from protocols.sessions.store.kept_kinds import objects
from protocols.sessions.store.pieces import Piece, Pieces
from protocols.sessions.store.state_keeper import StateKeeper
from tests.laws.killing import play
from tests.laws.runs import config

RUNS = [
    pytest.param("fed_avg", "masks", marks=pytest.mark.long),
    ("fed_avg", "he"),
    ("fed_ego", "shuffled"),
    ("fed_pub", "masks"),
]


@pytest.fixture(autouse=True)
def _keys_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))


def differs(one: Any, other: Any, path: str = "") -> str:
    """Return where two values differ, types and orders included; empty if nowhere."""
    if one is other:
        return ""
    kind = type(one)
    if kind is not type(other):
        return f"{path}: {kind} and {type(other)}"
    if kind is dict:
        if list(one) != list(other):
            return f"{path}: other keys, or in another order"
        return _first(differs(one[key], other[key], f"{path}/{key}") for key in one)
    if kind in (list, tuple):
        if len(one) != len(other):
            return f"{path}: another length"
        found = enumerate(zip(one, other, strict=True))
        return _first(differs(a, b, f"{path}/{n}") for n, (a, b) in found)
    if isinstance(one, np.ndarray):
        same = (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
        return "" if same else f"{path}: another array"
    if isinstance(one, Message):
        parts = {f.name: getattr(one, f.name) for f in one.fields}
        return differs(parts, {f.name: getattr(other, f.name) for f in other.fields}, path)
    if kind is Pairs:
        return differs(one.kept(), other.kept(), path)
    if isinstance(one, PublicKey):
        return "" if one.raw == other.raw else f"{path}: another key"
    if isinstance(one, SecretKey):
        return ""  # locked anew each time it is written
    if objects().get(kind.__name__) is kind:
        # The order of attributes says nothing, that of a dictionary's keys does.
        found, sought = (dict(sorted(attributes(x).items())) for x in (one, other))
        return differs(found, sought, path)
    return "" if one == other else f"{path}: {one!r} and {other!r}"


def _first(found: Any) -> str:
    return next((one for one in found if one), "")


def _at(state: Mapping[str, Any], path: str) -> Any:
    for step in path.split("/"):
        state = state[step]
    return state


def _compared(keeper: StateKeeper, session: Any) -> None:
    """Read the journal, write and read everything anew, and compare the two."""
    assert keeper._known is not None
    codec, store = keeper._known[0], keeper._journal._store
    line, cells = Journal(store, keeper._locked.place).read()
    pieces = Pieces(store, keeper._locked.place)  # type: ignore[arg-type]
    pieces.take_up({name: Piece(*facts) for name, facts in line.pieces.items()})
    cells = {name: data for name, data in cells.items() if not name.startswith("replies/")}
    kept, state = state_of(cells, codec, pieces.get), keeper._state(session)
    if keeper._site is not None and getattr(session, "learnt", 0):
        state |= {"site/draws": keeper._site.draws, "site/memory": keeper._site.memory}
    long: dict[str, bytes] = {}

    def apart(data: Any) -> str:
        name = f"{len(long)}"
        long[name] = bytes(data)
        return name

    whole = Changes()
    whole.since(state, codec, apart)
    full = state_of(whole.cells, codec, long.__getitem__)
    for path in state:
        assert not (found := differs(_at(kept, path), _at(full, path), path)), found
    assert {n.rpartition("#")[0] for n in cells} >= {n.rpartition("#")[0] for n in whole.cells}


def _comparing(count: Path, weakened: Any = None) -> Any:
    """Return what compares after each commit, and says how often in a file."""

    def arrange() -> None:
        save, done = StateKeeper.save, [0]

        def compared(self: StateKeeper, session: Any) -> None:
            save(self, session)
            _compared(self, session)
            done[0] += 1
            count.write_text(str(done[0]))

        patch.object(StateKeeper, "save", compared).start()
        if weakened is not None:
            weakened()

    return arrange


@pytest.mark.parametrize(("name", "policy"), RUNS)
def test_what_is_kept_of_changes_is_the_whole_state(name: str, policy: str, tmp_path: Path) -> None:
    count = tmp_path / "count"
    ended = play(config(name, policy), tmp_path / "run", sabotage=_comparing(count))
    assert ended.result is not None, ended.error
    assert int(count.read_text()) > 50


def _lists_never_change() -> None:
    is_same = writing.is_same

    def weak(before: Any, value: Any) -> bool:
        return type(before) is type(value) is list or is_same(before, value)

    patch.object(writing, "is_same", weak).start()


def _what_grows_is_taken_as_it_was() -> None:
    patch.object(changes, "_added", lambda held, value: ()).start()


@pytest.mark.parametrize("weakened", [_lists_never_change, _what_grows_is_taken_as_it_was])
def test_a_change_that_is_overlooked_is_found(weakened: Any, tmp_path: Path) -> None:
    """The control of the law: something is taken for unchanged that is not."""
    sabotage = _comparing(tmp_path / "count", weakened)
    ended = play(config("fed_avg", "masks"), tmp_path / "run", sabotage=sabotage)
    assert ended.result is None and ended.error.startswith("AssertionError"), ended.error
