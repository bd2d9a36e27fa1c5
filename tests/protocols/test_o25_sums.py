"""What is opened of cells: totals, blinds, labels, and what follows from all of them (O25)."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from protocols.disclosures.match.protocol.cells import (
    CellPlace,
    blinded,
    cell_label,
    context,
    opened,
    partial,
    shares,
    total,
)
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    RoundLost,
    UnfitMessage,
)
from tests.protocols.matching import RUN, added, crowd, read
from tests.protocols.test_o25_cells import made

WORD = 2**32


# --- what is opened -----------------------------------------------------------------------------


def vectors(names, size=6, levels=1000, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-levels, levels + 1, size) for name in names}


def test_o25_every_client_reads_the_means_of_all_cells():
    own, tags, found = made()
    values = vectors(own)
    totals, there, labels = added(values, tags, found)
    for name in ("c000", "c017"):
        means, usable = read(totals, there, labels, found.told[name], tags[name].group)
        assert usable.all()
        for cell in range(len(there)):
            stack = [values[n] for n in own if found.cells[n] == cell]
            np.testing.assert_array_equal(means[cell], np.mean(stack, axis=0))


def test_o25_what_the_aggregator_adds_is_uniform_without_the_groups_key():
    _, tags, found = made()
    zero = {name: np.zeros(4000, np.int64) for name in tags}
    seen: dict = {}
    totals, there, labels = added(zero, tags, found, seen=seen)
    everything = [totals.ravel()]
    everything += [np.frombuffer(part, "<u4") for _, parts in seen.values() for _, part in parts]
    for words in everything:
        counts = np.bincount(words >> 24, minlength=256)
        expected = words.size / 256
        assert ((counts - expected) ** 2 / expected).sum() < 390  # chi2, 255 degrees, 1e-7
    means, usable = read(totals, there, labels, found.told["c000"], bytes(32))
    assert not usable.any() and not means.any()


@pytest.mark.parametrize("missing", range(5))
def test_o25_four_of_five_members_learn_the_total_only(missing):
    members = tuple("abcde")
    values = np.array([5, -7, 2**31 - 1, -(2**31)], dtype=np.int64)
    split = [shares(values, members) for _ in range(2)]
    words = [{n: np.frombuffer(s, "<u4") for n, s in one.items()} for one in split]
    for one in words:
        whole = sum(part.astype(np.uint64) for part in one.values()) % WORD
        np.testing.assert_array_equal(whole.astype(np.uint32).view(np.int32), values)
    # The same values, split anew: without one share the sum of the others is another number.
    rest = [
        sum(w.astype(np.uint64) for n, w in one.items() if n != members[missing]) for one in words
    ]
    assert (rest[0] % WORD != rest[1] % WORD).all()


def test_o25_a_vanished_member_costs_its_cell_and_no_other():
    own, tags, found = made()
    gone = found.told["c000"].members[0]
    totals, there, labels = added(vectors(own), tags, found, gone=[gone])
    reader = next(n for n in own if found.cells[n] != found.cells[gone])
    means, usable = read(totals, there, labels, found.told[reader], tags[reader].group)
    assert not usable[found.cells[gone]] and usable.sum() == len(usable) - 1
    assert not means[found.cells[gone]].any()
    place = CellPlace(RUN, 1, 0, tuple("abcde"))
    split = shares(np.arange(3), place.members)
    with pytest.raises(RoundLost, match="1 of 5"):
        partial({n: split[n] for n in "abcd"}, place, 3)
    with pytest.raises(RoundLost, match="Only 4 of 5"):
        total([(bytes(32), bytes(12))] * 4, 5, 3)


def test_o25_an_altered_total_is_not_used():
    own, tags, found = made()
    totals, there, labels = added(vectors(own), tags, found)
    totals[0, 2] += np.uint32(1 << 20)
    means, usable = read(totals, there, labels, found.told["c000"], tags["c000"].group)
    assert not usable[0] and usable[1:].all() and not means[0].any()
    got = context(np.ones((1, len(usable)), bool), means, usable)
    np.testing.assert_allclose(got[0], means[1:].mean(axis=0))


def test_o25_blinds_are_of_one_exchange_one_cell_and_one_member():
    _, tags, _ = made()
    group, words = tags["c000"].group, np.zeros(50, np.uint32)
    place = CellPlace(RUN, 1, 0, tuple("abcde"))
    label = cell_label(dict.fromkeys("abcde", bytes(32)), place)
    places = [(place, label, n) for n in "abcde"]
    places += [(replace(place, exchange=2), label, "a"), (place, bytes(32), "a")]
    places += [(replace(place, run="00" * 16), label, "a")]
    found_ = {blinded(words, group, *at) for at in places} | {blinded(words, b"k" * 32, *places[0])}
    assert len(found_) == 9
    with pytest.raises(LocalProtocolError, match="own cell"):
        blinded(words, group, place, label, "z")


def test_o25_a_cells_label_takes_a_nonce_of_each_member_and_is_its_own():
    place = CellPlace(RUN, 1, 0, tuple("abcde"))
    nonces = {name: bytes([at]) * 32 for at, name in enumerate("abcde")}
    first = cell_label(nonces, place)
    others = [cell_label({**nonces, name: bytes([9]) * 32}, place) for name in "abcde"]
    others += [cell_label(nonces, replace(place, cell=1))]
    others += [cell_label({**nonces, "a": nonces["b"], "b": nonces["a"]}, place)]
    assert len({first, *others}) == 8
    for wrong in ({n: nonces[n] for n in "abcd"}, {**nonces, "a": bytes(31)}):
        with pytest.raises(BadEnvelope, match="one nonce of each"):
            cell_label(wrong, place)


def test_o25_members_with_different_labels_have_no_total():
    parts = [(bytes(32), bytes(12))] * 4 + [(b"l" * 32, bytes(12))]
    with pytest.raises(RoundLost, match="different labels"):
        total(parts, 5, 3)


def test_o25_a_total_under_another_label_stays_uniform():
    own, tags, found = made()
    totals, there, labels = added(vectors(own), tags, found)
    labels[0] = labels[1]
    _, usable = read(totals, there, labels, found.told["c000"], tags["c000"].group)
    assert not usable[0] and usable[1:].all()


def test_shares_of_strangers_or_of_another_size_are_refused():
    place = CellPlace(RUN, 1, 0, tuple("abcde"))
    split = shares(np.arange(3), place.members)
    with pytest.raises(BadEnvelope, match="outside"):
        partial({**split, "z": bytes(12)}, place, 3)
    with pytest.raises(BadEnvelope, match="size"):
        partial({**split, "a": bytes(8)}, place, 3)
    with pytest.raises(BadEnvelope, match="size"):
        total([(bytes(32), bytes(12))] * 4 + [(bytes(32), bytes(8))], 5, 3)


@pytest.mark.parametrize(
    "values", [np.array([2**31]), np.array([-(2**31) - 1]), np.zeros((2, 2), int), np.zeros(0, int)]
)
def test_what_does_not_fit_into_a_share_is_unfit(values):
    with pytest.raises(UnfitMessage):
        shares(values, tuple("abcde"))


def test_totals_that_may_wrap_are_refused():
    _, tags, found = made()
    told, cells = found.told["c000"], len(found.told["c000"].sizes)
    zeros, there = np.zeros((cells, 2), np.uint32), np.ones(cells, bool)
    labels = [bytes(32)] * cells
    with pytest.raises(UnfitMessage, match="32 bits"):
        read(zeros, there, labels, told, tags["c000"].group, levels=2**31 // 5)
    with pytest.raises(BadEnvelope, match="cells"):
        opened(zeros[:-1], there[:-1], labels, told, tags["c000"].group, (RUN, 1), 10)


# --- the rank test ------------------------------------------------------------------------------


def singled_out(rows: np.ndarray, known: tuple[int, ...] = ()) -> list[int]:
    """Return who follows from totals whose memberships are `rows`, beside the known ones."""
    kept = [c for c in range(rows.shape[1]) if c not in known]
    _, values, basis = np.linalg.svd(rows[:, kept].astype(float), full_matrices=False)
    basis = basis[values > 1e-9 * values.max()]
    return [kept[at] for at in np.flatnonzero((basis**2).sum(axis=0) > 1 - 1e-9)]


def test_o25_rank_nobody_follows_from_everything_that_is_opened():
    own, _, found = made()
    names = sorted(own)
    cells = np.array([found.cells[n] for n in names])
    opened_rows = (cells == np.arange(cells.max() + 1)[:, None]).astype(float)
    # Every context that any client can form, from any subset of bits, is in this row space.
    contexts = np.concatenate([told.rows.astype(float) for told in found.told.values()])
    all_rows = np.concatenate([opened_rows, contexts @ (opened_rows / opened_rows.sum(1)[:, None])])
    assert np.linalg.matrix_rank(all_rows) == cells.max() + 1
    assert singled_out(all_rows) == []
    for colluding in combinations(range(0, len(names), 5), 3):
        assert singled_out(all_rows, colluding) == []
    cell = np.flatnonzero(cells == 0)
    assert singled_out(all_rows, tuple(cell[:-1])) == [cell[-1]]  # all but one of a cell


def test_o25_rank_control_means_per_item_give_everybody_away():
    own = crowd(48, 150, 30)
    names, items = sorted(own), sorted({i for mine in own.values() for i in mine})
    holds = np.array([[i in own[n] for n in names] for i in items], dtype=float)
    per_item = holds[holds.sum(axis=1) >= 3]
    assert np.linalg.matrix_rank(per_item) == len(names)
    assert len(singled_out(per_item)) == len(names)
