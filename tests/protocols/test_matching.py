"""Whole matchings by boxes: every role, and an aggregator that carries them and tries things."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from protocols.boxes import BOX_OVERHEAD
from protocols.cell_sums import LABEL_BYTES, total
from protocols.desks import MatcherDesk, TagDesk
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    NotInPlan,
    Replay,
    RoundLost,
)
from protocols.match_guards import Match
from protocols.match_wire import Kind, MatchRun, read_told, told_bytes
from protocols.matching import ClientMatching
from protocols.roster import Identity, Role, Roster
from tests.protocols.matching import KEY, RUN, crowd, plain

MATCH = Match(cap=16, canaries=3, floor=2)
KEYED = Match(cap=16, canaries=3, floor=2, mode="hmac")
OTHERS = {
    "aggregator": Role.AGGREGATOR,
    "matcher": Role.MATCHER,
    "tags-1": Role.TAG_SERVER,
    "tags-2": Role.TAG_SERVER,
}
SIZE, LEVELS = 4, 1000


@cache
def people(clients: int = 11) -> dict[str, Identity]:
    names = {f"c{n:03d}": Role.CLIENT for n in range(clients)} | OTHERS
    return {name: Identity.generate(name, role) for name, role in names.items()}


class World:
    """All parties of one run, with an aggregator that a test may replace."""

    def __init__(self, match: Match = MATCH, clients: int = 11) -> None:
        known = people(clients)
        roster = Roster(identity.party for identity in known.values())
        self.run, self.known, self.names = MatchRun(RUN, roster, match, SIZE), known, roster.clients
        key = KEY if match.mode == "hmac" else None
        self.clients = {n: ClientMatching(self.run, known[n], key=key) for n in self.names}
        servers = ("tags-1", "tags-2") if match.mode == "oprf" else ()
        self.desks = {name: TagDesk(self.run, known[name]) for name in servers}
        self.matcher = MatcherDesk(self.run, known["matcher"])
        self.items = crowd(clients, 40, match.cap, seed=1)
        rng = np.random.default_rng(0)
        self.values = {n: rng.integers(-LEVELS, LEVELS + 1, SIZE) for n in self.names}
        self.sizes: dict[str, set[int]] = {}

    def _seen(self, kind: str, boxes) -> None:
        self.sizes.setdefault(kind, set()).update(map(len, boxes))

    def asked(self, epoch: int) -> dict[str, bytes]:
        for desk in self.desks.values():
            desk.begin(epoch)
        asked = {n: c.ask(epoch, self.items[n]) for n, c in self.clients.items()}
        self._seen("points", asked.values())
        return asked

    def served(self, server: str, asked, epoch: int) -> dict[str, bytes]:
        found = {n: self.desks[server].answer(n, epoch, box) for n, box in asked.items()}
        self._seen("answer", found.values())
        return found

    def onward(self, epoch: int) -> dict[str, bytes]:
        halfway = self.served("tags-1", self.asked(epoch), epoch)
        found = {n: c.forward(halfway[n]) for n, c in self.clients.items()}
        self._seen("points", found.values())
        return found

    def answered(self, epoch: int) -> dict[str, bytes]:
        return self.served("tags-2", self.onward(epoch), epoch)

    def tags(self, epoch: int = 0) -> dict[str, bytes]:
        answers = self.answered(epoch) if self.desks else dict.fromkeys(self.names, b"")
        if not self.desks:
            self.asked(epoch)
        found = {n: c.hand_over(answers[n]) for n, c in self.clients.items()}
        self._seen("tags", found.values())
        return found

    def told(self, epoch: int = 0) -> dict[str, bytes]:
        found = self.matcher.match(epoch, self.tags(epoch))
        self._seen("told", found.values())
        return found

    def shared(self, epoch: int = 0, exchange: int = 1) -> dict[str, dict[str, bytes]]:
        told = self.told(epoch)
        found = {n: c.share(told[n], self.values[n], exchange) for n, c in self.clients.items()}
        for boxes in found.values():
            self._seen("share", boxes.values())
        return found

    def cells(self) -> dict[str, int]:
        return {n: c.cell for n, c in self.clients.items()}

    def added(self, shared):
        """What an honest aggregator does: hand on boxes, add what comes back, cell by cell."""
        cells = self.cells()
        count = max(cells.values()) + 1
        totals, there = np.zeros((count, SIZE), np.uint32), np.zeros(count, bool)
        labels = [bytes(LABEL_BYTES)] * count
        for cell in range(count):
            members = [n for n in self.names if cells[n] == cell]
            parts = []
            for me in members:
                boxes = {o: shared[o][me] for o in members if o in shared}
                try:
                    parts.append(self.clients[me].add(boxes))
                except RoundLost:
                    continue
            if len(parts) == len(members):
                labels[cell], totals[cell] = total(parts, len(members), SIZE)
                there[cell] = True
        return totals, there, labels


@pytest.mark.parametrize("match", [MATCH, KEYED], ids=["oprf", "hmac"])
def test_a_whole_epoch(match):
    world = World(match, clients=17)
    totals, there, labels = world.added(world.shared())
    cells = world.cells()
    assert there.all() and len(there) == 3
    lists = plain(world.items, cells, match.floor)
    for name, client in world.clients.items():
        assert {i: list(map(int, c)) for i, c in client.lists.items()} == lists[name]
        means, usable = client.open(totals, there, labels, LEVELS)
        assert usable.all()
        for cell in range(3):
            stack = [world.values[n] for n in cells if cells[n] == cell]
            np.testing.assert_array_equal(means[cell], np.mean(stack, axis=0))
        with pytest.raises(LocalProtocolError, match="stands at OVER"):
            client.open(totals, there, labels, LEVELS)
    for desk in world.desks.values():
        assert desk.report() == {"clients": 17, "epoch": 0, "quota": 19, "refused": 0}


def test_o24_every_box_of_a_kind_has_the_size_that_the_plan_says():
    world = World()
    world.shared()
    assert world.sizes == {str(kind): {world.run.length(kind)} for kind in Kind if kind != "handed"}
    assert len({len(own) for own in world.items.values()}) > 5
    assert world.run.length(Kind.POINTS) == 32 * (16 + 3) + BOX_OVERHEAD


def test_o25_a_later_epoch_has_other_tags_and_the_same_cells():
    world = World()
    world.added(world.shared(0, 1))
    before = world.cells()
    totals, there, labels = world.added(world.shared(1, 2))
    assert world.cells() == before
    assert world.clients["c003"].open(totals, there, labels, LEVELS)[1].all()


def test_o25_a_client_that_vanishes_costs_its_cell_alone():
    world = World()
    shared = world.shared()
    gone = world.names[0]
    lost = world.cells()[gone]
    del shared[gone]
    totals, there, labels = world.added(shared)
    assert [int(c) for c in np.flatnonzero(~there)] == [lost]
    for name in world.names[1:]:  # those of the lost cell read the others' means, too
        means, usable = world.clients[name].open(totals, there, labels, LEVELS)
        assert usable.tolist() == there.tolist() and not means[lost].any()


def test_cells_are_made_of_all_clients_and_later_ones_may_be_missing():
    world = World()
    boxes = world.tags()
    with pytest.raises(RoundLost, match="of all clients"):
        world.matcher.match(0, {n: boxes[n] for n in world.names[1:]})
    world.matcher.match(0, boxes)
    later = world.tags(1)
    del later["c005"]
    assert set(world.matcher.match(1, later)) == set(world.names) - {"c005"}


PUBLISHED = Match(cap=16, canaries=3, floor=2, form="published", neighbours=3, vectors=8)


def published(world: World, epoch: int = 0) -> dict[str, bytes]:
    answers = world.answered(epoch)
    boxes = {n: c.hand_over(answers[n], world.values[n]) for n, c in world.clients.items()}
    assert {len(box) for box in boxes.values()} == {world.run.length(Kind.TAGS)}
    found = world.matcher.match(epoch, boxes)
    assert {len(box) for box in found.values()} == {world.run.length(Kind.HANDED)}
    return found


def test_a_whole_epoch_in_the_published_form():
    world, met = World(PUBLISHED), 0
    handed = published(world)
    for name, client in world.clients.items():
        vectors, rows = client.take(handed[name])
        for item, places in rows.items():
            for at in places:
                who = [n for n, v in world.values.items() if np.array_equal(v, vectors[at])]
                assert len(who) == 1 and item in world.items[who[0]] and who[0] != name
                met += 1
        with pytest.raises(LocalProtocolError, match="stands at OVER"):
            client.take(handed[name])
    assert met > 50


def test_forms_are_not_mixed():
    world = World(PUBLISHED)
    handed = published(world)
    with pytest.raises(LocalProtocolError, match="cell_means"):
        world.clients["c000"].share(handed["c000"], world.values["c000"], 1)
    with pytest.raises(BadEnvelope):
        world.clients["c001"].take(handed["c000"])
    other = World()
    answers = other.answered(0)
    with pytest.raises(LocalProtocolError, match="of that name only"):
        other.clients["c000"].hand_over(answers["c000"], other.values["c000"])
    other.clients["c001"].hand_over(answers["c001"])
    with pytest.raises(LocalProtocolError, match="'published' only"):
        other.clients["c001"].take(b"")


# --- order --------------------------------------------------------------------------------------


def test_steps_come_once_and_in_order():
    world = World()
    client = world.clients["c000"]
    for early in (
        lambda: client.forward(b""),
        lambda: client.hand_over(b""),
        lambda: client.share(b"", world.values["c000"], 1),
        lambda: client.add({}),
        lambda: client.open(np.zeros((3, SIZE), np.uint32), np.ones(3, bool), [], LEVELS),
    ):
        with pytest.raises(LocalProtocolError, match="stands at OVER"):
            early()
    client.ask(0, [1, 2])
    for skipped in (lambda: client.hand_over(b""), lambda: client.add({})):
        with pytest.raises(LocalProtocolError, match="stands at FORWARD"):
            skipped()
    keyed = World(KEYED).clients["c000"]
    keyed.ask(0, [1, 2])
    with pytest.raises(LocalProtocolError, match="stands at HAND_OVER"):
        keyed.forward(b"")
    for epoch in (0, -1):
        with pytest.raises(Replay, match="once an epoch"):
            client.ask(epoch, [1, 2])


def test_o25_a_client_shares_once_whatever_the_matcher_says():
    world = World()
    told = world.told()
    client = world.clients["c000"]
    client.share(told["c000"], world.values["c000"], 1)
    with pytest.raises(LocalProtocolError, match="stands at ADD"):
        client.share(told["c000"], world.values["c000"], 2)


def test_a_step_that_failed_ends_the_epoch():
    world = World()
    halfway = world.served("tags-1", world.asked(0), 0)
    client = world.clients["c000"]
    with pytest.raises(BadEnvelope):
        client.forward(halfway["c001"])  # another client's
    for step in (client.forward, client.hand_over):
        with pytest.raises(LocalProtocolError, match="stands at OVER"):
            step(halfway["c000"])


def test_blinds_of_an_exchange_are_used_once():
    world = World()
    world.shared(0, 1)
    told = world.told(1)
    with pytest.raises(Replay, match="Blinds"):
        world.clients["c000"].share(told["c000"], world.values["c000"], 1)


# --- an aggregator that tries things ------------------------------------------------------------


def test_o24_quota_holds_behind_boxes():
    world = World()
    asked = world.asked(0)
    desk, box = world.desks["tags-1"], asked["c000"]
    desk.answer("c000", 0, box)
    with pytest.raises(NotInPlan, match="quota"):
        desk.answer("c000", 0, box)
    assert desk.report()["refused"] == 1
    for name in ("c001", "tags-2", "matcher", "aggregator"):  # under somebody else's quota
        with pytest.raises(BadEnvelope):
            desk.answer(name, 0, box)
    with pytest.raises(BadEnvelope):
        world.desks["tags-2"].answer("c002", 0, asked["c002"])  # for the other server
    desk.begin(1)
    with pytest.raises(BadEnvelope):
        desk.answer("c003", 1, asked["c003"])  # of the last epoch


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
    for desk in world.desks.values():
        desk.begin(0)
    me, points = world.known["aggregator"], bytes(32 * MATCH.places)
    box = world.run.close(points, Kind.POINTS, 0, me, "tags-1")
    for name in ("aggregator", "c000"):
        with pytest.raises(BadEnvelope):
            world.desks["tags-1"].answer(name, 0, box)


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


# --- roles and keys -----------------------------------------------------------------------------


def test_roles_are_held_to():
    world = World()
    with pytest.raises(LocalProtocolError):
        TagDesk(world.run, world.known["matcher"])
    with pytest.raises(LocalProtocolError):
        MatcherDesk(world.run, world.known["tags-1"])
    with pytest.raises(LocalProtocolError):
        TagDesk(World(KEYED).run, world.known["tags-1"])
    for run, key in ((world.run, KEY), (World(KEYED).run, None)):
        with pytest.raises(LocalProtocolError, match="hmac"):
            ClientMatching(run, world.known["c000"], key=key)


@pytest.mark.parametrize("servers", [1, 3])
def test_o24_two_tag_servers_and_no_other_number(servers):
    known = {n: i for n, i in people().items() if not n.startswith("tags")}
    for number in range(servers):
        name = f"tags-{number}"
        known[name] = Identity.generate(name, Role.TAG_SERVER)
    roster = Roster(identity.party for identity in known.values())
    client = ClientMatching(MatchRun(RUN, roster, MATCH, SIZE), known["c000"])
    with pytest.raises(LocalProtocolError, match="two tag servers"):
        client.ask(0, [1])


def test_what_is_told_survives_the_wire_and_gaps_do_not():
    world = World()
    told = world.told()["c000"]
    content = world.run.open(told, Kind.TOLD, 0, world.known["c000"], "matcher")
    assert told_bytes(read_told(content, world.run), world.run) == content
    start = 32 + 4 + 2  # digest, number, mask of 11 clients
    gap = content[:start] + bytes(4) + content[start + 4 :]
    with pytest.raises(BadEnvelope, match="gaps"):
        read_told(gap, world.run)


def test_bits_where_the_wire_pads_are_refused():
    run = World(clients=45).run  # nine cells at most, so two bytes a tag
    sizes = np.zeros(9, "<u4")
    sizes[0] = 45
    head = bytes(32 + 4 + 6) + sizes.tobytes()
    bits = np.zeros((MATCH.cap, 2), np.uint8)
    assert read_told(head + bits.tobytes(), run).bits.shape == (MATCH.cap, 1)
    bits[3, 1] = 1
    with pytest.raises(BadEnvelope, match="cells that there are not"):
        read_told(head + bits.tobytes(), run)


def test_everything_with_a_secret_is_mute():
    world = World()
    for secret in (world.clients["c000"], world.desks["tags-1"], world.matcher):
        assert repr(secret) == f"<{type(secret).__name__}>"
        for leak in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError):
                leak(secret)
