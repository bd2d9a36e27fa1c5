"""The form `published`: who is handed to whom, and what a lying matcher can do (O24)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.cells import (
    check_neighbours,
    locked,
    locked_bytes,
    neighbours,
    unlocked,
)
from protocols.errors import BadEnvelope, UnfitMessage
from tests.protocols.matching import RUN, crowd, keyed_all

WIDE = Match(cap=32, floor=2, form="published", neighbours=30, vectors=64)
TIGHT = Match(cap=32, floor=3, form="published", neighbours=2, vectors=6)
WHERE = (RUN, 0)
ITEMS = crowd(30, 80, 20, seed=4)


@cache
def made(match: Match):
    tags = keyed_all(ITEMS, match)
    rng = np.random.default_rng(0)
    values = {name: rng.integers(-1000, 1000, 5) for name in ITEMS}
    boxes = {name: locked(values[name], tags[name].group, *WHERE) for name in ITEMS}
    sent = {name: mine.sent for name, mine in tags.items()}
    digests = {name: mine.digest for name, mine in tags.items()}
    return tags, values, boxes, neighbours(sent, digests, boxes, match)


def who(vectors, values) -> list[str]:
    return [next(n for n in values if np.array_equal(values[n], row)) for row in vectors]


def holders(me: str) -> dict[int, set[str]]:
    return {item: {n for n in ITEMS if item in ITEMS[n]} - {me} for item in ITEMS[me]}


def test_lists_are_those_of_plaintext_matching_where_nothing_is_capped():
    tags, values, boxes, found = made(WIDE)
    for name in ITEMS:
        vectors, rows = check_neighbours(found[name], tags[name], boxes[name], WIDE, WHERE)
        names = who(vectors, values)
        got = {item: {names[at] for at in row} for item, row in rows.items()}
        assert got == {item: others for item, others in holders(name).items() if others}


def test_lists_are_part_of_those_of_plaintext_matching_under_caps():
    tags, values, boxes, found = made(TIGHT)
    full = 0
    for name in ITEMS:
        vectors, rows = check_neighbours(found[name], tags[name], boxes[name], TIGHT, WHERE)
        names, mine = who(vectors, values), holders(name)
        assert len(names) <= TIGHT.vectors
        for item, row in rows.items():
            assert 1 <= len(row) <= TIGHT.neighbours
            assert {names[at] for at in row} <= mine[item]
            assert len(mine[item]) + 1 >= TIGHT.floor
        full += sum(len(row) == TIGHT.neighbours for row in rows.values())
    assert full > 50
    assert len({part.boxes.shape for part in found.values()}) == 1  # whoever has how many


def test_choices_are_drawn_anew():
    tags, _, boxes, _ = made(TIGHT)
    sent = {name: mine.sent for name, mine in tags.items()}
    digests = {name: mine.digest for name, mine in tags.items()}
    one, other = (neighbours(sent, digests, boxes, TIGHT) for _ in range(2))
    assert any(not np.array_equal(one[n].links, other[n].links) for n in ITEMS)


def test_the_matcher_reads_nothing_and_nothing_repeats():
    tags, values, _, _ = made(WIDE)
    group = tags["c000"].group
    box = locked(values["c000"], group, *WHERE)
    assert len(box) == locked_bytes(5)
    assert box != locked(values["c000"], group, *WHERE)
    np.testing.assert_array_equal(unlocked(box, group, *WHERE), values["c000"])
    for key, where in ((bytes(32), WHERE), (group, (RUN, 1)), (group, ("00" * 16, 0))):
        with pytest.raises(BadEnvelope, match="no client"):
            unlocked(box, key, *where)
    with pytest.raises(BadEnvelope):
        unlocked(b"", group, *WHERE)
    with pytest.raises(UnfitMessage):
        locked(np.array([2**31]), group, *WHERE)


def lies():
    tags, _, boxes, found = made(WIDE)
    told, mine = found["c000"], tags["c000"]
    row = next(at for at in mine.places.values() if (told.links[at] > 0).sum() > 1)
    random = next(at for at in range(WIDE.cap) if at not in mine.places.values())
    used = int(told.links.max())

    def linked(at, column, link):
        links = told.links.copy()
        links[at, column] = link
        return replace(told, links=links)

    def boxed(at, box):
        changed = told.boxes.copy()
        changed[at] = np.frombuffer(box, np.uint8)
        return replace(told, boxes=changed)

    return {
        "another canary": (replace(told, digest=bytes(32)), "canary"),
        "under a random tag": (linked(random, 0, 1), "random tag"),
        "twice under one item": (linked(row, 1, int(told.links[row, 0])), "twice|no item"),
        "twice in all": (boxed(1, told.boxes[0].tobytes()), "twice"),
        "myself": (boxed(0, boxes["c000"]), "its own"),
        "of no client": (boxed(0, bytes(len(boxes["c000"]))), "no client"),
        "beyond all": (linked(row, 0, WIDE.vectors + 1), "there are not"),
        "below zero": (linked(row, 0, -1), "there are not"),
        "of no item": (linked(row, 0, used + 2), "no item"),
        "cut short": (replace(told, links=told.links[:-1]), "planned size"),
    }


@pytest.mark.parametrize("name", lies())
def test_o24_a_matcher_that_lies_is_refused(name):
    tags, _, boxes, found = made(WIDE)
    check_neighbours(found["c000"], tags["c000"], boxes["c000"], WIDE, WHERE)
    told, why = lies()[name]
    with pytest.raises(BadEnvelope, match=why):
        check_neighbours(told, tags["c000"], boxes["c000"], WIDE, WHERE)


def test_parts_that_are_missing_or_of_another_size_are_refused():
    tags, _, boxes, _ = made(WIDE)
    sent = {name: mine.sent for name, mine in tags.items()}
    digests = {name: mine.digest for name, mine in tags.items()}
    with pytest.raises(BadEnvelope, match="only a part"):
        neighbours(sent, digests, {n: b for n, b in boxes.items() if n != "c003"}, WIDE)
    with pytest.raises(UnfitMessage, match="size"):
        neighbours(sent, digests, {**boxes, "c003": boxes["c003"] + b"\0"}, WIDE)
    with pytest.raises(BadEnvelope, match="canary"):
        neighbours(sent, {**digests, "c003": bytes(32)}, boxes, WIDE)
