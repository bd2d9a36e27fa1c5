"""Long values of a kept state: written once, named by content, removed when nothing names them."""

from __future__ import annotations

import numpy as np
import pytest

from crypto.rest import new_key
from protocols.errors import LedgerError
from protocols.sessions.store.codec import StateCodec
from protocols.sessions.store.pieces import Pieces
from protocols.sessions.store.state_keeper import LockedStateStore

LONG = 1 << 16


class Shelf:
    """A store in memory that counts what is written."""

    def __init__(self) -> None:
        self.key, self.pieces, self.written = new_key(), {}, []

    def put(self, name, data):
        self.pieces[name] = data
        self.written.append(name)

    def get(self, name):
        return self.pieces.get(name)

    def drop(self, name):
        self.pieces.pop(name, None)

    def names(self):
        return sorted(self.pieces)


@pytest.fixture
def shelf():
    return Shelf()


def pieces(shelf, run="run"):
    return Pieces(LockedStateStore(shelf, run, "client-1"))


@pytest.fixture
def codec():
    return StateCodec({}, (), None, new_key())


def parts(shelf):
    return {name for name in shelf.pieces if name.startswith("part-")}


def test_a_value_comes_back_and_what_did_not_change_is_written_once(shelf, codec):
    model, incoming = np.arange(LONG, dtype=np.float32), bytes(range(256)) * 300
    kept = pieces(shelf)
    kept.put("session", codec, {"model": model, "again": model.copy(), "letter": incoming, "n": 1})
    assert len(parts(shelf)) == 2  # the model once, although two places hold it
    shelf.written.clear()
    kept.put("session", codec, {"model": model, "letter": incoming, "n": 2})
    assert shelf.written == ["session"]
    found = pieces(shelf).get("session", codec)
    assert np.array_equal(found["model"], model) and found["letter"] == incoming and found["n"] == 2


def test_a_changed_array_is_written_anew_and_its_old_part_goes(shelf, codec):
    model, kept = np.zeros(LONG, dtype=np.float32), pieces(shelf)
    kept.put("session", codec, {"model": model})
    before = parts(shelf)
    model[7] = 1.0  # in place: the same object, other content
    kept.put("session", codec, {"model": model})
    kept.sweep()
    assert parts(shelf).isdisjoint(before) and len(parts(shelf)) == 1
    assert pieces(shelf).get("session", codec)["model"][7] == 1.0


def test_a_part_stays_as_long_as_one_piece_names_it(shelf, codec):
    model, kept = np.ones(LONG), pieces(shelf)
    kept.put("site-1", codec, [model])
    kept.put("session", codec, {"model": model})
    kept.put("session", codec, {})
    kept.sweep()
    assert np.array_equal(kept.get("site-1", codec)[0], model)
    kept.drop("site-1")
    kept.sweep()
    assert not parts(shelf)


def test_what_a_kill_left_over_is_removed_on_resuming(shelf, codec):
    first = pieces(shelf)
    first.put("session", codec, [np.ones(LONG)])
    named = parts(shelf)
    first.put("site-2", codec, [np.zeros(LONG)])  # and killed before the session named it
    shelf.drop("site-2")
    again = pieces(shelf)
    assert again.found() == ["session"]
    again.get("session", codec)
    again.sweep()
    assert parts(shelf) == named


def test_the_secrets_of_a_state_that_was_replaced_are_in_no_part(shelf, codec):
    kept = pieces(shelf)
    kept.put("session", codec, {"seed": b"s" * LONG})
    kept.put("session", codec, {"seed": b""})
    kept.sweep()
    assert shelf.names() == ["session"]


def test_names_tell_nothing_of_the_content_to_whoever_lacks_the_key(codec):
    one, other = Shelf(), Shelf()
    for shelf in (one, other):
        pieces(shelf).put("session", codec, [np.zeros(LONG)])
    assert parts(one).isdisjoint(parts(other))


def test_a_part_that_is_another_is_refused(shelf, codec):
    kept = pieces(shelf)
    kept.put("session", codec, [np.zeros(LONG), np.ones(LONG)])
    one, other = sorted(parts(shelf))
    shelf.pieces[one], shelf.pieces[other] = shelf.pieces[other], shelf.pieces[one]
    with pytest.raises(LedgerError, match="does not open"):
        pieces(shelf).get("session", codec)


def test_a_part_of_another_run_is_refused(shelf, codec):
    pieces(shelf).put("session", codec, [np.zeros(LONG)])
    with pytest.raises(LedgerError, match="does not open"):
        pieces(shelf, "other").get("session", codec)


def test_a_part_that_is_missing_is_refused(shelf, codec):
    pieces(shelf).put("session", codec, [np.zeros(LONG)])
    shelf.drop(*parts(shelf))
    with pytest.raises(LedgerError, match="missing"):
        pieces(shelf).get("session", codec)


def test_an_array_that_a_state_holds_twice_is_written_once_and_scalars_stay_apart(shelf, codec):
    model = np.arange(LONG, dtype=np.float64).reshape(256, -1)
    several = [np.float64(n) for n in range(200)]  # short-lived arrays: ids that come again
    kept = pieces(shelf)
    kept.put("session", codec, {"model": model, "twice": model, "turned": model.T, "n": several})
    found = pieces(shelf).get("session", codec)
    assert len(parts(shelf)) == 1  # turned, it is the same bytes read in another order
    assert found["n"] == several
    assert np.array_equal(found["turned"], model.T) and found["turned"].flags.f_contiguous
    assert found["twice"] is not found["model"] and np.array_equal(found["twice"], model)
