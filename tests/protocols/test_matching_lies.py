"""Matchings by boxes with an aggregator, servers and a matcher that try things."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.wire import Kind, MatchRun, read_told, told_bytes
from protocols.errors import (
    BadEnvelope,
    NotInPlan,
    Replay,
)
from tests.protocols.boxed import MATCH, SIZE, World
from tests.protocols.matching import RUN


def test_o24_quota_holds_behind_boxes():
    world = World()
    asked = world.asked(0)
    side, box = world.sides["tags-1"], asked["c000"]
    side.answer("c000", 0, box)
    with pytest.raises(NotInPlan, match="quota"):
        side.answer("c000", 0, box)
    assert side.report()["refused"] == 1
    for name in ("c001", "tags-2", "matcher", "aggregator"):  # under somebody else's quota
        with pytest.raises(BadEnvelope):
            side.answer(name, 0, box)
    with pytest.raises(BadEnvelope):
        world.sides["tags-2"].answer("c002", 0, asked["c002"])  # for the other server
    side.begin(1)
    with pytest.raises(BadEnvelope):
        side.answer("c003", 1, asked["c003"])  # of the last epoch


@pytest.mark.parametrize("what", ["other server", "none", "flip", "cut", "other client"])
@pytest.mark.parametrize("second", [False, True])
def test_answers_that_the_aggregator_exchanged_are_refused(what, second):
    world = World()
    asked = world.asked(0)
    halfway = world.served("tags-1", asked, 0)
    client, others = world.clients["c000"], halfway
    if second:
        onward = {n: c.forward(halfway[n]) for n, c in world.clients.items()}
        others = world.served("tags-2", onward, 0)
    mine = others["c000"]
    made = {
        "none": b"",
        "flip": mine[:-1] + bytes([mine[-1] ^ 1]),
        "cut": mine[:-1],
        "other client": others["c001"],
        "other server": world.run.close(
            bytes(32 * MATCH.places),
            Kind.ANSWER,
            0,
            world.known[f"tags-{1 if second else 2}"],
            "c000",
        ),
    }[what]
    with pytest.raises(BadEnvelope):
        (client.hand_over if second else client.forward)(made)


@pytest.mark.parametrize("bad", [bytes(32), b"\xff" * 32], ids=["identity", "no point"])
def test_o24_a_first_answer_that_is_no_points_is_not_passed_on(bad):
    world = World()
    halfway = world.served("tags-1", world.asked(0), 0)
    content = world.run.open(halfway["c000"], Kind.ANSWER, 0, world.known["c000"], "tags-1")
    box = world.run.close(content[:-32] + bad, Kind.ANSWER, 0, world.known["tags-1"], "c000")
    with pytest.raises(BadEnvelope, match="first tag server's answer is not usable"):
        world.clients["c000"].forward(box)


def test_o24_the_second_server_sees_no_point_that_the_first_one_saw():
    world = World()
    asked = world.asked(0)
    halfway = world.served("tags-1", asked, 0)
    seen = {"tags-1": asked, "tags-2": {n: c.forward(halfway[n]) for n, c in world.clients.items()}}
    points = {
        server: {
            content[at : at + 32]
            for name, box in boxes.items()
            for content in [world.run.open(box, Kind.POINTS, 0, world.known[server], name)]
            for at in range(0, len(content), 32)
        }
        for server, boxes in seen.items()
    }
    assert [len(those) for those in points.values()] == [11 * MATCH.places] * 2
    assert not points["tags-1"] & points["tags-2"]
    with pytest.raises(BadEnvelope):
        world.run.open(asked["c000"], Kind.POINTS, 0, world.known["tags-2"], "c000")


@pytest.mark.parametrize("what", ["", "run", "kind", "epoch", "cell", "sender", "to"])
def test_a_box_opens_for_what_it_was_closed_for_only(what):
    world = World()
    run, (one, other, third) = world.run, (world.known[f"c00{n}"] for n in range(3))
    box = run.close(bytes(32 + 4 * SIZE), Kind.SHARE, 3, one, "c001", "digest")
    alike = Match(cap=8, canaries=2)  # whose tags are as long as that share
    wide = MatchRun(RUN, run.roster, alike, 8 * 16 // 4)
    opens = {
        "": lambda: run.open(box, Kind.SHARE, 3, other, "c000", "digest"),
        "run": lambda: replace(run, run="00" * 16).open(
            box, Kind.SHARE, 3, other, "c000", "digest"
        ),
        "kind": lambda: wide.open(
            wide.close(bytes(32 + 4 * wide.size), Kind.SHARE, 3, one, "c001"),
            Kind.TAGS,
            3,
            other,
            "c000",
        ),
        "epoch": lambda: run.open(box, Kind.SHARE, 4, other, "c000", "digest"),
        "cell": lambda: run.open(box, Kind.SHARE, 3, other, "c000", "another"),
        "sender": lambda: run.open(box, Kind.SHARE, 3, other, "c002", "digest"),
        "to": lambda: run.open(box, Kind.SHARE, 3, third, "c000", "digest"),
    }
    if not what:
        assert opens[what]() == bytes(32 + 4 * SIZE)
        return
    with pytest.raises(BadEnvelope, match="not from the client"):
        opens[what]()


def test_o24_an_aggregator_cannot_ask_for_tags():
    world = World()
    for side in world.sides.values():
        side.begin(0)
    me, points = world.known["aggregator"], bytes(32 * MATCH.places)
    box = world.run.close(points, Kind.POINTS, 0, me, "tags-1")
    for name in ("aggregator", "c000"):
        with pytest.raises(BadEnvelope):
            world.sides["tags-1"].answer(name, 0, box)


def test_tags_in_anothers_name_or_of_another_epoch_are_refused():
    world = World()
    boxes = world.tags()
    swapped = {**boxes, "c000": boxes["c001"]}
    with pytest.raises(BadEnvelope):
        world.matcher.match(0, swapped)
    with pytest.raises(Replay, match="once"):
        world.matcher.match(0, boxes)
    with pytest.raises(BadEnvelope):
        world.matcher.match(1, boxes)


def test_what_the_matcher_told_another_is_refused():
    world = World()
    told = world.told()
    mate = next(n for n in world.names if n != "c000")
    with pytest.raises(BadEnvelope):
        world.clients["c000"].share(told[mate], world.values["c000"], 1)


def test_o25_a_matcher_that_tells_members_different_cells_opens_nothing():
    """The victim thinks of four mates; they think of a stranger in its place."""
    world = World()
    told = world.told()
    told_mine = {
        n: read_told(world.run.open(b, Kind.TOLD, 0, world.known[n], "matcher"), world.run)
        for n, b in told.items()
    }
    mine = told_mine["c000"]
    victim = mine.members[-1]
    stranger = next(n for n in world.names if n not in mine.members)
    others = tuple(sorted({*mine.members, stranger} - {victim}))
    for name in others:
        lie = replace(mine, members=others, bits=np.zeros_like(mine.bits))
        content = told_bytes(lie, world.run)
        told[name] = world.run.close(content, Kind.TOLD, 0, world.known["matcher"], name)
    shared = {n: c.share(told[n], world.values[n], 1) for n, c in world.clients.items()}
    assert "c000" in shared[victim]
    for mate, given_as in zip(others, (victim, stranger), strict=False):
        boxes = {n: shared[n][mate] for n in others if n != stranger}
        with pytest.raises(BadEnvelope):  # as it is, and in the stranger's name
            world.clients[mate].add({**boxes, given_as: shared[victim][mate]})
    # And what the victim gets of its mates is bound to the cell that they were told.
    with pytest.raises(BadEnvelope):
        world.clients[victim].add({n: shared[n].get(victim, bytes(1)) for n in mine.members})


def test_o8_members_that_were_handed_different_models_add_up_nothing():
    """Handed zeros, all but one would say what is known, and the total would be that one's."""
    for other, adds in (("b" * 64, False), ("a" * 64, True)):
        world = World()
        told = world.told()
        shared = {
            n: c.share(told[n], world.values[n], 1, "a" * 64 if n == "c000" else other)
            for n, c in world.clients.items()
        }
        mates = sorted(shared["c000"])
        boxes = {n: shared[n]["c000"] for n in mates}
        if adds:  # the control
            assert world.clients["c000"].add(boxes, "a" * 64)
            continue
        with pytest.raises(BadEnvelope):
            world.clients["c000"].add(boxes, "a" * 64)


def test_shares_that_the_aggregator_exchanged_are_refused():
    world = World()
    shared = world.shared()
    cells = world.cells()
    mates = [n for n in world.names if cells[n] == cells["c000"]]
    boxes = {n: shared[n]["c000"] for n in mates}
    boxes[mates[0]], boxes[mates[1]] = boxes[mates[1]], boxes[mates[0]]
    with pytest.raises(BadEnvelope):
        world.clients["c000"].add(boxes)
    outside = next(n for n in world.names if n not in mates)
    with pytest.raises(BadEnvelope, match="outside"):
        world.clients[mates[1]].add({**{n: shared[n][mates[1]] for n in mates}, outside: b""})
