"""Whole matchings by boxes: every role, steps in their order, and keys."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.client import ClientMatching
from protocols.disclosures.match.protocol.tag_service import MatcherSide, TagServerSide
from protocols.disclosures.match.protocol.wire import Kind, MatchRun, read_told, told_bytes
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    Replay,
    RoundLost,
)
from protocols.keys.pairs import BOX_OVERHEAD
from protocols.wire.roles import Role
from protocols.wire.roster import Identity, Roster
from tests.protocols.boxed import KEYED, LEVELS, MATCH, SIZE, World, people
from tests.protocols.matching import KEY, RUN, plain


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
    for side in world.sides.values():
        assert side.report() == {"clients": 17, "epoch": 0, "quota": 19, "refused": 0}


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


# --- roles and keys -----------------------------------------------------------------------------


def test_roles_are_held_to():
    world = World()
    with pytest.raises(LocalProtocolError):
        TagServerSide(world.run, world.known["matcher"])
    with pytest.raises(LocalProtocolError):
        MatcherSide(world.run, world.known["tags-1"])
    with pytest.raises(LocalProtocolError):
        TagServerSide(World(KEYED).run, world.known["tags-1"])
    for run, key in ((world.run, KEY), (World(KEYED).run, None)):
        with pytest.raises(LocalProtocolError, match="hmac"):
            ClientMatching(run, world.known["c000"], key=key)


@pytest.mark.parametrize("servers", [1, 3])
def test_o24_two_tag_servers_and_no_other_number(servers):
    known = {n: i for n, i in people().items() if not n.startswith("tags")}
    for number in range(servers):
        name = f"tags-{number}"
        known[name] = Identity.generate(name, Role.TAG_SERVER)
    if servers > 2:
        with pytest.raises(BadEnvelope, match="at most 2 parties in role tag_server"):
            Roster(identity.party for identity in known.values())
        return
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
    for secret in (world.clients["c000"], world.sides["tags-1"], world.matcher):
        assert repr(secret) == f"<{type(secret).__name__}>"
        for leak in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError):
                leak(secret)
