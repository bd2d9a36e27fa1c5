"""A party's journal: what is written of a commit, what is destroyed, and what is refused."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from crypto.aead import new_key
from protocols.errors import LedgerError, LocalProtocolError
from protocols.sessions.store.cells import state_of
from protocols.sessions.store.changes import Changes
from protocols.sessions.store.codec import StateCodec
from protocols.sessions.store.journal import Journal
from protocols.sessions.store.pieces import Piece, Pieces
from tests.protocols.killed import Drawer

LONG = 1 << 16
PLACE = "secure-fgl/test/run/client-1"


class Keeping:
    """Keeps a state as `StateKeeper` does, of any values."""

    def __init__(self, drawer: Drawer) -> None:
        self.drawer, self.codec = drawer, StateCodec({}, (), None, new_key())
        self.journal, self.pieces = Journal(drawer, PLACE), Pieces(drawer, PLACE)
        self.changes, self.ledger = Changes(), {"head": "", "pending": b"", "written": 0}
        self.written = 0

    def save(self, state, *, anew: bool = False) -> set[str]:
        if anew := anew or self.journal.grown:
            self.changes = Changes()
        changed = self.changes.since(state, self.codec, self.pieces.apart)
        made, unmade = self.pieces.settle(self.changes.named(), anew=anew)
        told = {name: (one.key, one.file, one.size) for name, one in made.items()}
        cells, gone = self.changes.cells, self.changes.gone
        self.written = sum(map(len, cells.values()))
        self.journal.write(self.ledger, cells, gone, (told, unmade), anew=anew)
        self.pieces.sweep()
        return changed

    def read(self):
        journal, pieces = Journal(self.drawer, PLACE), Pieces(self.drawer, PLACE)
        line, cells = journal.read()
        pieces.take_up({name: Piece(*facts) for name, facts in line.pieces.items()})
        return state_of(cells, self.codec, pieces.get)


@pytest.fixture
def keeping() -> Keeping:
    return Keeping(Drawer())


def journals(drawer: Drawer) -> list[str]:
    return [name for name in drawer.names() if name.startswith("journal-")]


def parts(drawer: Drawer) -> list[str]:
    return [name for name in drawer.names() if name.startswith("part-")]


def test_what_comes_back_is_what_was_held_after_any_changes(keeping: Keeping) -> None:
    """Of every container that is written down by what changed; types and orders included."""
    draw = random.Random(7)
    seen: set[tuple[str, int]] = set()
    sent: dict[tuple[str, int], int] = {}
    seeds: dict[int, bytes] = {n: draw.randbytes(32) for n in range(12)}
    lists: dict[str, list[tuple[int, ...]]] = {}
    state = {"a/seen": seen, "a/sent": sent, "a/seeds": seeds, "b/lists": lists, "b/flag": True}
    for number in range(120):
        match draw.randrange(7):
            case 0:
                seen.add(("x", number))
            case 1:
                sent["y", number % 9] = sent.get(("y", number % 9), 0) + 1
            case 2 if seeds:
                seeds.pop(draw.choice(list(seeds)))
            case 3 if seeds:  # taken out and put in again: it stands last now
                key = draw.choice(list(seeds))
                seeds[key] = seeds.pop(key)
            case 4:
                lists.setdefault(f"{number % 4}", []).append((number, 1))
            case 5 if seen:
                seen.discard(draw.choice(sorted(seen)))
            case 6:
                state["b/flag"] = draw.choice([True, 1, 1.0, None, "", b"", (1,), (True,)])
        keeping.save(state)
        found = keeping.read()
        assert found == {"a": {k[2:]: v for k, v in state.items() if k[0] == "a"}, "b": found["b"]}
        assert list(found["a"]["seeds"]) == list(seeds) and list(found["a"]["sent"]) == list(sent)
        assert found["b"]["lists"] == lists
        assert repr(found["b"]["flag"]) == repr(state["b/flag"])


def test_a_value_that_changes_in_place_is_noticed(keeping: Keeping) -> None:
    model, inner = np.zeros(8), [{"deep": [1]}]
    keeping.save({"model": model, "inner": inner})
    model[3] = 2.0
    inner[0]["deep"].append(2)
    assert keeping.save({"model": model, "inner": inner}) == {"model", "inner"}
    assert keeping.read()["model"][3] == 2.0 and keeping.read()["inner"] == inner


def test_a_list_with_other_values_is_noticed(keeping: Keeping) -> None:
    asked = ["client-1", "client-2"]
    keeping.save({"asked": asked})
    asked[1] = "client-3"
    assert keeping.save({"asked": asked}) == {"asked"} and keeping.read() == {"asked": asked}
    assert not keeping.save({"asked": list(asked)})


def test_bytes_of_a_commit_do_not_grow_with_the_run(keeping: Keeping) -> None:
    seen, sent, sizes, totals = set(), {}, [], []
    for number in range(3_000):
        seen.add(("client-1", "train.up", number, 1))
        sent["train.up", "aggregator", number] = 1
        keeping.save({"session/seen": seen, "session/sent": sent, "session/number": number})
        sizes.append(keeping.written)
        totals.append(sum(len(data) for data in keeping.drawer.pieces.values()))
    anew = sorted(sizes)[-40:]
    assert max(sorted(sizes)[:-40]) < 600, "more than what is new"
    assert sum(anew) < 12 * sizes[-1] * len(sizes)  # amortised over those that write all anew
    assert totals[-1] < 20 * max(anew) + LONG  # what was replaced is not kept


def test_without_what_changed_a_commit_writes_the_whole_state(keeping: Keeping) -> None:
    """The control of the bound: the same commits, each written as if nothing were known."""
    seen = {("client-1", "train.up", number, 1) for number in range(500)}
    keeping.save({"session/seen": seen})
    whole = keeping.written
    seen.add(("client-1", "train.up", 500, 1))
    keeping.save({"session/seen": seen})
    assert keeping.written < whole / 50
    keeping.save({"session/seen": seen}, anew=True)
    assert keeping.written >= whole


def _secrets(keeping: Keeping) -> list[bytes]:
    """Return all that opens of one journal's bytes with what lies outside now."""
    try:
        _, cells = Journal(keeping.drawer, PLACE).read()
    except LedgerError:
        return []
    return list(cells.values())


def test_o9_what_was_used_up_is_overwritten_in_the_file(keeping: Keeping) -> None:
    seeds = {number: bytes([65 + number]) * 32 for number in range(4)}
    keeping.save({"pairs/b": seeds})
    (name,) = journals(keeping.drawer)
    at, size = keeping.journal._cells["pairs/b#2"]
    before = bytes(keeping.drawer.pieces[name])
    del seeds[1]
    keeping.save({"pairs/b": seeds})
    after = bytes(keeping.drawer.pieces[name])
    assert any(before[at : at + size]) and not any(after[at : at + size])
    assert len(_secrets(keeping)) == 4  # how it is read, and three seeds


def test_o9_once_an_epoch_is_over_nothing_of_it_opens_even_in_a_copy(keeping: Keeping) -> None:
    keeping.save({"pairs/b": {0: b"s" * 32}, "model": np.ones(LONG)})
    copy, outside = deepcopy(keeping.drawer.pieces), keeping.drawer.outside
    assert any(b"s" * 32 in cell for cell in _secrets(keeping))
    keeping.save({"pairs/b": {}}, anew=True)
    assert not set(copy).intersection(journals(keeping.drawer)), "the old journal is there"
    now, keeping.drawer.pieces = keeping.drawer.pieces, copy
    assert not _secrets(keeping)
    # Nor where somebody sets back everything outside but the key.
    keeping.drawer.outside = replace(outside, key=keeping.drawer.outside.key)
    assert not _secrets(keeping)
    keeping.drawer.outside = outside  # the control: it is the key that was destroyed
    assert any(b"s" * 32 in cell for cell in _secrets(keeping))
    keeping.drawer.pieces = now


def test_o5_a_journal_that_was_put_back_is_refused(keeping: Keeping) -> None:
    keeping.save({"opened": []})
    copy, outside = deepcopy(keeping.drawer.pieces), keeping.drawer.outside
    keeping.save({"opened": [1]})
    keeping.drawer.pieces = copy
    with pytest.raises(LedgerError, match="older than the last commit"):
        keeping.read()
    keeping.drawer.outside = outside  # the control: the number outside is what tells
    assert keeping.read() == {"opened": []}


def _torn(keeping: Keeping) -> tuple[str, bytes, list[tuple[int, bytes]]]:
    """Return a journal's name, its bytes, and what the next commit wrote, in order."""
    keeping.save({"n": 1, "model": {0: b"a" * 40, 1: b"b" * 40}})
    (name,) = journals(keeping.drawer)
    before, outside, writes = bytes(keeping.drawer.pieces[name]), keeping.drawer.outside, []
    patch = keeping.drawer.patch

    def noted(name: str, found) -> None:
        writes.extend((at, bytes(data)) for at, data in found)
        patch(name, writes)

    keeping.drawer.patch = noted
    keeping.save({"n": 2, "model": {1: b"c" * 40}})
    keeping.drawer.patch, keeping.drawer.outside = patch, outside  # the number comes after all
    assert writes[0][0] == len(before) and len(writes) > 2
    return name, before, writes


def test_a_line_that_was_cut_short_is_no_commit(keeping: Keeping) -> None:
    """Cut after every byte: what was held before comes back, whole."""
    name, before, writes = _torn(keeping)
    earlier, later = {"n": 1, "model": {0: b"a" * 40, 1: b"b" * 40}}, {"n": 2}
    line = writes[0][1]
    for size in range(len(line)):
        keeping.drawer.pieces[name] = bytearray(before + line[:size])
        assert keeping.read() == earlier, size
    # The control: whole it is one, whichever of its cells' predecessors were overwritten yet.
    for done in range(len(writes)):
        keeping.drawer.pieces[name] = bytearray(before)
        keeping.drawer.patch(name, writes[: done + 1])
        assert keeping.read() == {**later, "model": {1: b"c" * 40}}


@pytest.mark.parametrize("place", [6, 30, -4])
def test_a_changed_byte_is_refused(keeping: Keeping, place: int) -> None:
    keeping.save({"n": (1, 2)})
    (name,) = journals(keeping.drawer)
    keeping.drawer.pieces[name][place] ^= 1
    with pytest.raises(LedgerError):
        keeping.read()


def test_a_line_that_was_left_out_is_refused(keeping: Keeping) -> None:
    ends = []
    for number in range(4):
        keeping.save({"n": number})
        (name,) = journals(keeping.drawer)
        ends.append(len(keeping.drawer.pieces[name]))
    data = keeping.drawer.pieces[name]
    for first, last in ((0, 1), (1, 2)):
        start = ends[first - 1] if first else 5
        keeping.drawer.pieces[name] = data[:start] + data[ends[last - 1] :]
        with pytest.raises(LedgerError, match="does not open"):
            keeping.read()


def test_a_long_value_is_written_once_and_overwritten_once_it_is_dropped(keeping: Keeping) -> None:
    model = np.arange(LONG, dtype=np.float32)
    keeping.save({"model": model, "again": [model.copy()], "n": 1})
    assert len(parts(keeping.drawer)) == 1  # two places hold it
    before = bytes(keeping.drawer.pieces[parts(keeping.drawer)[0]])
    assert keeping.save({"model": model, "again": [model.copy()], "n": 2}) == {"n"}
    for number in range(20):
        keeping.save({"model": model + number, "again": [], "n": 3})
        assert keeping.read()["model"][1] == number + 1
        assert len(parts(keeping.drawer)) <= 2
    held = [bytes(keeping.drawer.pieces[name]) for name in parts(keeping.drawer)]
    assert before not in held
    keeping.save({"n": 4})
    assert not parts(keeping.drawer)


def test_a_long_value_that_is_another_or_missing_is_refused(keeping: Keeping) -> None:
    keeping.save({"model": [np.zeros(LONG), np.ones(LONG)]})
    one, other = parts(keeping.drawer)
    held = keeping.drawer.pieces
    held[one], held[other] = held[other], held[one]
    with pytest.raises(LedgerError, match="does not open"):
        keeping.read()
    keeping.drawer.drop(one)
    with pytest.raises(LedgerError):
        keeping.read()


def test_after_a_write_that_failed_everything_is_written_anew(keeping: Keeping) -> None:
    keeping.save({"n": 1})
    patch = keeping.drawer.patch

    def full(name, writes):
        (at, data), *_ = writes
        patch(name, [(at, data[: len(data) // 2])])
        raise OSError(28, "No space left on device")

    keeping.drawer.patch = full
    with pytest.raises(LedgerError, match="No space"):
        keeping.save({"n": 2})
    keeping.drawer.patch = patch
    assert keeping.read() == {"n": 1}
    keeping.save({"n": 3})
    assert keeping.read() == {"n": 3} and len(journals(keeping.drawer)) == 1


def test_a_state_of_another_run_or_party_is_refused(keeping: Keeping) -> None:
    keeping.save({"n": 1})
    with pytest.raises(LedgerError, match="does not open"):
        Journal(keeping.drawer, PLACE.replace("client-1", "client-2")).read()


def test_after_a_loss_of_power_the_number_outside_may_lag(keeping: Keeping) -> None:
    keeping.save({"n": 1})
    keeping.save({"n": 2})
    keeping.drawer.outside = replace(keeping.drawer.outside, number=1)
    assert keeping.read() == {"n": 2}


def test_what_cannot_be_kept_raises(keeping: Keeping) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be kept"):
        keeping.save({"n": object()})
