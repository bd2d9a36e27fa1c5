"""Cells: disjoint, opened blind, read by clients only; what the matcher may not do (O25)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.cells import (
    CellPlace,
    cell_digest,
    check_told,
    context,
    held_rows,
)
from protocols.errors import (
    BadEnvelope,
    CohortTooSmall,
    UnfitMessage,
)
from tests.protocols.matching import RUN, compared, crowd, keyed_all, plain, served

MATCH = Match(cap=32, floor=3)
WORD = 2**32


@cache
def made(clients: int = 48, items: int = 150, seed: int = 0):
    own = crowd(clients, items, 30, seed)
    tags = keyed_all(own, MATCH)
    return own, tags, compared(tags, MATCH)


@given(st.integers(5, 40), st.integers(5, 60), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_o25_every_client_is_in_exactly_one_cell_of_at_least_five(clients, items, seed):
    own = crowd(clients, items, 5, seed)
    found = compared(keyed_all(own, MATCH), MATCH)
    assert set(found.cells) == set(own)
    sizes = np.bincount(list(found.cells.values()))
    assert sizes.min() >= MATCH.cell
    assert len(sizes) == clients // MATCH.cell
    for name, told in found.told.items():
        assert told.sizes.tolist() == sizes.tolist()
        assert told.members == tuple(sorted(n for n in own if found.cells[n] == found.cells[name]))


@pytest.mark.parametrize("split", [False, True])
def test_o25_lists_are_those_of_plaintext_matching_under_the_same_caps(split):
    own = crowd(12, 40, 20, 3) if split else made()[0]
    tags = served(own, MATCH) if split else made()[1]
    found = compared(tags, MATCH)
    wanted = plain(own, found.cells, MATCH.floor)
    lists = {
        name: {item: list(map(int, cells)) for item, cells in held_rows(told, tags[name]).items()}
        for name, told in found.told.items()
    }
    assert lists == wanted
    assert sum(map(len, lists.values())) > 50
    assert any(len(wanted[n]) < len(own[n]) for n in own)  # the floor left some out
    for name, told in found.told.items():
        check_told(told, tags[name], name, MATCH, list(own))


def test_cells_share_tags():
    """Two tastes without a common item: no cell mixes them, where sizes allow."""
    rng = np.random.default_rng(1)
    own = {
        f"c{n:02d}": sorted(int(i) for i in rng.choice(20, 9, replace=False) + 20 * (n % 2))
        for n in range(40)
    }
    cells = compared(keyed_all(own, MATCH), MATCH).cells
    for cell in set(cells.values()):
        assert len({int(n[1:]) % 2 for n in own if cells[n] == cell}) == 1


def test_o25_messages_are_of_one_size_whoever_asks():
    own, tags, found = made()
    assert len({len(mine) for mine in own.values()}) > 5
    assert len({told.bits.shape for told in found.told.values()}) == 1
    assert len({mine.sent.shape for mine in tags.values()}) == 1


def test_o25_cells_stay_for_the_run():
    own, _tags, found = made()
    later = keyed_all({name: mine[:2] for name, mine in own.items()}, MATCH, epoch=1)
    again = compared(later, MATCH, found.cells)
    assert again.cells == found.cells
    me = "c000"
    check_told(again.told[me], later[me], me, MATCH, list(own), found.told[me])
    anew = compared(later, MATCH)
    assert anew.cells != found.cells
    with pytest.raises(BadEnvelope, match="earlier in this run"):
        check_told(anew.told[me], later[me], me, MATCH, list(own), found.told[me])
    some = {name: later[name] for name in list(later)[3:]}  # three vanished
    assert compared(some, MATCH, found.cells).told["c010"].members == found.told["c010"].members
    with pytest.raises(BadEnvelope, match="Others take part"):
        compared(later, MATCH, {n: c for n, c in found.cells.items() if n != me})


def test_fewer_clients_than_a_cell_are_refused():
    with pytest.raises(CohortTooSmall, match="takes 5"):
        compared(keyed_all(crowd(4, 20, 5), MATCH), MATCH)


# --- a matcher that lies ------------------------------------------------------------------------


def flipped(told, row: int, cell: int):
    rows = told.rows
    rows[row, cell] ^= True
    return replace(told, bits=np.packbits(rows, axis=1))


def lies():
    own, tags, found = made()
    me = "c000"
    told, mine = found.told[me], tags[me]
    others = [n for n in own if n not in told.members]
    cell = told.cell
    random = next(r for r in range(MATCH.cap) if r not in mine.places.values())
    row = next(r for r in mine.places.values() if told.rows[r].any())
    fewer, grown = told.sizes.copy(), told.sizes.copy()
    fewer[cell] -= 1
    grown[cell] += 1
    small = (*told.members[:3], me) if me not in told.members[:3] else told.members[:4]
    small_sizes = told.sizes.copy()
    small_sizes[cell], small_sizes[cell - 1] = 4, told.sizes[cell - 1] + told.sizes[cell] - 4
    swapped = tuple(sorted([*[*(n for n in told.members if n != me)][1:], me, others[0]]))
    return {
        "another canary": (replace(told, digest=bytes(32)), "canary"),
        "a canary cut short": (replace(told, digest=told.digest[:31]), "canary"),
        "a cell without me": (
            replace(told, members=found.told[others[0]].members),
            "not this client",
        ),
        "a stranger": (
            replace(told, members=tuple(sorted([*told.members[1:], me, "zed"]))),
            "strangers",
        ),
        "somebody twice": (replace(told, members=(told.members[0], *told.members)), "twice"),
        "out of order": (replace(told, members=told.members[::-1]), "twice"),
        "a cell of four": (
            replace(told, members=tuple(sorted(set(small))), sizes=small_sizes),
            "smaller",
        ),
        "sizes that do not add up": (replace(told, sizes=grown), "sizes of the cells"),
        "one fewer in my cell": (replace(told, sizes=fewer), "smaller|sizes of the cells"),
        "no such cell": (replace(told, cell=len(told.sizes)), "sizes of the cells"),
        "a cell below zero": (replace(told, cell=-1), "sizes of the cells"),
        "another cell than before": (replace(told, members=swapped), "earlier in this run"),
        "a random tag without my own cell": (
            flipped(told, random, (cell + 1) % len(told.sizes)),
            "own cell out",
        ),
        "my own cell left out": (flipped(told, row, cell), "own cell out"),
        "bits cut short": (replace(told, bits=told.bits[:, :-1]), "planned size"),
        "bits beyond the cells": (
            replace(told, bits=told.bits | np.uint8(1)),
            "cells that there are not",
        ),
    }


@pytest.mark.parametrize("name", lies())
def test_o25_a_matcher_that_lies_is_refused(name):
    own, tags, found = made()
    assert len(made()[2].told["c000"].sizes) % 8, "some bits must stand beyond the cells"
    check_told(found.told["c000"], tags["c000"], "c000", MATCH, list(own), found.told["c000"])
    told, why = lies()[name]
    with pytest.raises(BadEnvelope, match=why):
        check_told(told, tags["c000"], "c000", MATCH, list(own), found.told["c000"])


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_o25_foreign_or_missing_cells_are_bounded_by_means_of_cells(seed):
    """Whatever bits a matcher sets, an item gets a mean of true cell means and nothing else."""
    _, _tags, found = made()
    rng = np.random.default_rng(seed)
    told = found.told["c000"]
    means = rng.normal(size=(len(told.sizes), 3))
    rows = rng.random((4, len(told.sizes))) < 0.3
    got = context(rows, means, np.ones(len(told.sizes), bool))
    for row, mean in zip(rows, got, strict=True):
        wanted = means[row].mean(axis=0) if row.any() else np.zeros(3)
        np.testing.assert_allclose(mean, wanted, atol=1e-12)


def test_o25_members_who_were_told_different_cells_hold_different_digests():
    place = CellPlace(RUN, 1, 2, ("a", "b", "c", "d", "e"))
    others = [
        replace(place, members=("a", "b", "c", "d", "f")),
        replace(place, cell=3),
        replace(place, exchange=2),
        replace(place, run="00" * 16),
    ]
    assert len({cell_digest(one) for one in [place, *others]}) == 5


@pytest.mark.parametrize("wrong", ["order", "twice", "size", "digests"])
def test_a_client_that_sends_wrong_tags_is_refused(wrong):
    _own, tags, _ = made()
    sent = {name: mine.sent for name, mine in tags.items()}
    digests = {name: mine.digest for name, mine in tags.items()}
    if wrong == "order":
        sent["c001"] = sent["c001"][::-1]
    elif wrong == "twice":
        sent["c001"] = sent["c001"][np.r_[0, 0, 2:32]]
    elif wrong == "size":
        sent["c001"] = sent["c001"][:-1]
    else:
        del digests["c001"]
    from protocols.disclosures.match.protocol.cells import matched

    with pytest.raises((BadEnvelope, UnfitMessage)):
        matched(sent, digests, MATCH)
